use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier, Weak,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use super::*;
use crate::Error;

/// Long enough for a thread that does not wait, short enough for one that does.
const SOON: Duration = Duration::from_secs(20);

fn problem(images: usize) -> Problem {
    format!("mb{images}ic1ih4oc1kh1").parse().unwrap()
}

fn key(images: usize) -> Key {
    (Device::cpu(), problem(images), Pick::Rule)
}

fn made(images: usize) -> Result<Conv> {
    Conv::new(&Device::cpu(), &problem(images), &Pick::Rule)
}

#[test]
fn it_is_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<ConvCache>();
}

#[test]
fn what_is_asked_for_is_what_comes() {
    let cache = ConvCache::default();
    for images in [1, 2, 1] {
        let (device, problem, pick) = key(images);
        let conv = cache.get(&device, &problem, &pick).unwrap();
        assert_eq!(*conv.problem(), problem);
    }
    let named = "cpu_direct".parse().unwrap();
    let conv = cache.get(&Device::cpu(), &problem(1), &named).unwrap();
    assert_eq!(conv.name(), "cpu_direct");
    assert_eq!(cache.len(), 3);
    cache.clear();
    assert!(cache.is_empty());
}

#[test]
fn one_thread_makes_and_the_others_wait() {
    let (cache, times, together) = (ConvCache::default(), AtomicUsize::new(0), Barrier::new(8));
    let make = || {
        times.fetch_add(1, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(50));
        made(1)
    };
    let convs: Vec<Arc<Conv>> = thread::scope(|scope| {
        let get = || {
            together.wait();
            cache.get_or_make(key(1), make).unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(get)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(times.into_inner(), 1);
    assert!(convs.iter().all(|conv| Arc::ptr_eq(conv, &convs[0])));
}

#[test]
fn nobody_waits_for_another_convolution() {
    let cache = ConvCache::default();
    let (done, other_is_done) = mpsc::channel();
    thread::scope(|scope| {
        let make = move || {
            let other = other_is_done.recv_timeout(SOON);
            other.expect("the other convolution waits for this one");
            made(1)
        };
        scope.spawn(|| cache.get_or_make(key(1), make).unwrap());
        while cache.is_empty() {
            thread::yield_now();
        }
        cache.get_or_make(key(2), || made(2)).unwrap();
        done.send(()).unwrap();
    });
}

#[test]
fn an_error_is_not_kept() {
    let cache = ConvCache::default();
    let nobody = "nobody".parse().unwrap();
    for _ in 0..2 {
        let error = cache.get(&Device::cpu(), &problem(1), &nobody).unwrap_err();
        assert!(matches!(error, Error::UnknownVariant { .. }), "{error}");
        assert!(cache.is_empty());
    }
    let refused = cache.get_or_make(key(1), || Err(Error::Interrupted));
    assert!(refused.is_err());
    assert!(cache.get_or_make(key(1), || made(1)).is_ok());
}

#[test]
fn who_waited_for_an_error_tries_it_himself() {
    let (cache, times) = (ConvCache::default(), AtomicUsize::new(0));
    let make = || match times.fetch_add(1, Ordering::Relaxed) {
        0 => {
            // Until the other one waits: the table, this thread and he have the place.
            while Arc::strong_count(&lock(&cache.table).slots[&key(1)].place) < 3 {
                thread::yield_now();
            }
            Err(Error::Interrupted)
        }
        _ => made(1),
    };
    let answers: Vec<bool> = thread::scope(|scope| {
        let get = || cache.get_or_make(key(1), make).is_ok();
        let threads = [scope.spawn(get), scope.spawn(get)];
        threads.map(|t| t.join().unwrap()).into()
    });
    assert_eq!(answers.iter().filter(|ok| **ok).count(), 1);
    assert_eq!((times.into_inner(), cache.len()), (2, 1));
}

/// After `clear` a place that failed may have another asker, who makes its convolution at this moment.
#[test]
fn forgetting_waits_for_nobody() {
    let mut table = Table::default();
    let place = table.place(&key(1));
    table.slots.clear();
    let others = place.clone();
    let making = lock(&others);
    let (done, forgot) = mpsc::channel();
    thread::scope(|scope| {
        let place = &place;
        scope.spawn(move || done.send(table.forget(&key(1), place).len()));
        let answer = forgot.recv_timeout(SOON);
        drop(making);
        assert_eq!(answer, Ok(0));
    });
}

#[test]
fn a_panic_while_making_harms_nobody_else() {
    let cache = ConvCache::default();
    let panics = || cache.get_or_make(key(1), || panic!("planted"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(cache.get_or_make(key(1), || made(1)).is_ok());
    assert!(cache.get_or_make(key(2), || made(2)).is_ok());
    assert_eq!(cache.len(), 2);
}

#[test]
fn those_leave_that_were_not_asked_for_the_longest() {
    let cache = ConvCache::new(3);
    let first = cache.get_or_make(key(1), || made(1)).unwrap();
    let mut others: Vec<Weak<Conv>> = Vec::new();
    for images in 2..100 {
        let other = cache.get_or_make(key(images), || made(images)).unwrap();
        others.push(Arc::downgrade(&other));
        assert!(cache.len() <= 3);
        let again = cache.get_or_make(key(1), || panic!("it had left")).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
    }
    let kept: Vec<bool> = others.iter().map(|c| c.upgrade().is_some()).collect();
    assert_eq!(kept.iter().filter(|kept| **kept).count(), 2);
    assert!(kept.ends_with(&[true, true]));
}

#[test]
fn what_is_being_made_does_not_leave() {
    let cache = ConvCache::new(1);
    let (begins, has_begun) = mpsc::channel();
    let (done, others_are_done) = mpsc::channel();
    let slow = move || {
        begins.send(()).unwrap();
        others_are_done.recv_timeout(SOON).unwrap();
        made(1)
    };
    thread::scope(|scope| {
        scope.spawn(|| cache.get_or_make(key(1), slow).unwrap());
        // It is in the table a little earlier, when who asks next may still be the one who makes it.
        has_begun.recv_timeout(SOON).unwrap();
        for images in 2..10 {
            cache.get_or_make(key(images), || made(images)).unwrap();
        }
        // This one waits for the slow one, and makes none beside it.
        scope.spawn(|| {
            cache
                .get_or_make(key(1), || panic!("a second one"))
                .unwrap()
        });
        while Arc::strong_count(&lock(&cache.table).slots[&key(1)].place) < 3 {
            thread::yield_now();
        }
        done.send(()).unwrap();
    });
    let again = cache.get_or_make(key(1), || panic!("it had left"));
    assert_eq!(again.unwrap().problem().n(), 1);
}

#[test]
fn many_threads_on_few_places_stay_bounded() {
    let cache = ConvCache::new(4);
    thread::scope(|scope| {
        for start in 0..8_usize {
            let cache = &cache;
            scope.spawn(move || {
                for i in 0..500 {
                    let images = 1 + (start + i * (start + 1)) % 12;
                    let conv = cache.get_or_make(key(images), || made(images)).unwrap();
                    assert_eq!(conv.problem().n(), images);
                    assert!(cache.len() <= 4 + 8);
                }
            });
        }
    });
    // Who was the last to make one may have seen others take theirs.
    cache.get_or_make(key(99), || made(99)).unwrap();
    assert!(cache.len() <= 4);
}
