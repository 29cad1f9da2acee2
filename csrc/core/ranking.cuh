// Which of its plans a row takes: the one that is estimated to take least or, for whoever measures
// them, one of the next.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

// The last configurations of such a row, before the null at their end.
#define CF_NEXT_PLANS "plan=2", "plan=3", "plan=4", "plan=5", "plan=6", "plan=7", "plan=8"

namespace cf {

constexpr int Plans = 8;

// The first ones of the choices that it meets, by what they are estimated to take; of two that take
// the same, the one that was met before is ahead.
template <class Choice>
class FirstChoices {
  public:
    struct Place {
        double us;
        Choice choice;
    };

    // Keeps `most` of them.
    void meet(const Choice &choice, double us, int most) {
        int at = kept;
        while (at > 0 && us < places[at - 1].us)
            --at;
        if (at == most)
            return;
        kept = std::min(kept + 1, most);
        std::copy_backward(places.begin() + at, places.begin() + kept - 1, places.begin() + kept);
        places[at] = {us, choice};
    }
    int count() const { return kept; }
    const Place &operator[](int place) const { return places[place]; }

  private:
    int kept = 0;
    std::array<Place, Plans> places;
};

// Of the choices that it meets, the one in a place.
template <class Choice>
class Ranking {
  public:
    using Place = typename FirstChoices<Choice>::Place;

    // All configurations before the second plan's are for the first place, of choices of their own.
    template <size_t Count>
    Ranking(int32_t config, const char *const (&)[Count])
        : place(std::max(config - int32_t(Count - Plans) + 1, 0)) {}

    void meet(const Choice &choice, double us) { first.meet(choice, us, place + 1); }

    bool met_none() const { return first.count() == 0; }

    // Null where fewer were met.
    const Place *found() const { return first.count() > place ? &first[place] : nullptr; }

  private:
    int place;
    FirstChoices<Choice> first;
};

} // namespace cf
