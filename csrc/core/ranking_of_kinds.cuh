// As core/ranking.cuh, for plans of two kinds whose estimates are further off between kinds than
// within one: half of a row's plans are of each, where there are so many.
#pragma once

#include "core/ranking.cuh"

namespace cf {

template <class Choice>
class RankingOfKinds {
  public:
    using Place = typename Ranking<Choice>::Place;

    template <size_t Count>
    RankingOfKinds(int32_t config, const char *const (&)[Count])
        : place(std::max(config - int32_t(Count - Plans) + 1, 0)) {}

    void meet(bool kind, const Choice &choice, double us) {
        kinds[kind].met = std::min(kinds[kind].met + 1, Plans);
        kinds[kind].first.meet(choice, us, place + 1);
    }

    // Null where fewer were met.
    const Place *found() const {
        int next[2] = {};
        for (int before = 0;; ++before) {
            const Place *const firsts[2] = {candidate(0, next[0]), candidate(1, next[1])};
            if (!firsts[0] && !firsts[1])
                return nullptr;
            const bool kind = !firsts[0] || (firsts[1] && firsts[1]->us <= firsts[0]->us);
            if (before == place)
                return firsts[kind];
            ++next[kind];
        }
    }

  private:
    struct Kind {
        int met = 0; // counted up to all plans
        FirstChoices<Choice> first;
    };

    // A kind's choice of this number; null behind the last of its share.
    const Place *candidate(bool kind, int number) const {
        const int share = std::max(Plans / 2, Plans - kinds[!kind].met);
        const auto &first = kinds[kind].first;
        return number < std::min(first.count(), share) ? &first[number] : nullptr;
    }

    int place;
    Kind kinds[2];
};

} // namespace cf
