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

// Of the choices that it meets, the one in a place by what they are estimated to take; of two that
// take the same, the one that was met before is ahead.
template <class Choice>
class Ranking {
  public:
    struct Place {
        double us;
        Choice choice;
    };

    // All configurations before the second plan's are for the first place, of choices of their own.
    template <size_t Count>
    Ranking(int32_t config, const char *const (&)[Count])
        : place(std::max(config - int32_t(Count - Plans) + 1, 0)) {}

    void meet(const Choice &choice, double us) {
        int at = count;
        while (at > 0 && us < places[at - 1].us)
            --at;
        if (at > place)
            return;
        count = std::min(count + 1, place + 1);
        std::copy_backward(places.begin() + at, places.begin() + count - 1, places.begin() + count);
        places[at] = {us, choice};
    }

    bool met_none() const { return count == 0; }

    // Null where fewer were met.
    const Place *found() const { return count > place ? &places[place] : nullptr; }

  private:
    int place, count = 0;
    std::array<Place, Plans> places;
};

} // namespace cf
