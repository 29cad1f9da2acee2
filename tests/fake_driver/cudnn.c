/* cuDNN's graph API: every graph has two engines of two knobs each. It counts what is destroyed while
 * something that was made of it is still there. Executing a plan only moves a clock. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { OK = 0, HANDLE = 0, INT64 = 3, DESCRIPTOR = 15, MOST = 64 };
/* Attributes, as cudnn_graph.h numbers them. */
enum { RESULTS = 202, ENGINE = 300, ENGINES = 802, KNOB_MAXIMUM = 1201, KNOB_STRIDE = 1203, KNOBS = 1302,
       CHOICES = 302, KNOB_VALUE = 601, INDEX = 1301 };

/* What is made of others has their engine, and the sum of their knobs. Plans are built by several threads,
 * of the same handle and operations. */
struct thing { _Atomic int users; int count; int64_t engine, knobs; struct thing *parts[MOST]; };
static _Atomic int made, destroyed, early, executed;
static double *clock_us;
_Atomic int *fake_made(void) { return &made; }
_Atomic int *fake_destroyed(void) { return &destroyed; }
_Atomic int *fake_early(void) { return &early; }
_Atomic int *fake_executed(void) { return &executed; }
void fake_move(double *clock) { clock_us = clock; }

static int make(struct thing **out) { return made++, *out = calloc(1, sizeof(struct thing)), OK; }
static int destroy(struct thing *thing) {
    destroyed++, early += thing->users != 0;
    while (thing->count)
        thing->parts[--thing->count]->users--;
    /* Not freed: what still uses it counts down here. */
    return OK;
}

size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(int status) { return (void)status, "FAKE_ERROR"; }
void cudnnGetLastErrorString(char *text, size_t size) { (void)size, *text = 0; }
int cudnnCreate(struct thing **out) { return make(out); }
int cudnnDestroy(struct thing *thing) { return destroy(thing); }
int cudnnSetStream(struct thing *thing, void *stream) { return (void)thing, (void)stream, OK; }
int cudnnBackendCreateDescriptor(int kind, struct thing **out) { return (void)kind, make(out); }
int cudnnBackendDestroyDescriptor(struct thing *thing) { return destroy(thing); }
int cudnnBackendFinalize(struct thing *thing) { return (void)thing, OK; }

int cudnnBackendSetAttribute(struct thing *thing, int name, int type, int64_t count, struct thing **of) {
    for (int64_t i = 0; (type == HANDLE || type == DESCRIPTOR) && i < count; i++) {
        of[i]->users++;
        thing->engine += of[i]->engine, thing->knobs += of[i]->knobs;
        thing->parts[thing->count++] = of[i];
    }
    if (name == INDEX)
        thing->engine = *(int64_t *)of;
    if (name == KNOB_VALUE)
        thing->knobs = *(int64_t *)of;
    return OK;
}

int cudnnBackendGetAttribute(struct thing *thing, int name, int type, int64_t room, int64_t *count,
                             int64_t *out) {
    (void)room;
    if (type == DESCRIPTOR) {
        if (name == ENGINE || name == CHOICES) {
            struct thing *part = *(struct thing **)out;
            part->engine = thing->engine, part->knobs = thing->knobs;
        }
        return *count = name == RESULTS || name == ENGINE || name == CHOICES ? 1 : name == KNOBS ? 2 : 0, OK;
    }
    if (type != INT64)
        return *count = 0, OK;
    *out = name == INDEX ? thing->engine
         : name == KNOB_VALUE ? thing->knobs
         : name == ENGINES ? 2 : name == KNOB_MAXIMUM || name == KNOB_STRIDE;
    return *count = 1, OK;
}

/* Engine 0 takes 100 us and a bit more with its knobs, engine 1 fifty times as long. */
int cudnnBackendExecute(struct thing *handle, struct thing *plan, struct thing *pack) {
    (void)handle, (void)pack, executed++;
    *clock_us += plan->engine ? 5000 : 100 + 10 * plan->knobs;
    return OK;
}
