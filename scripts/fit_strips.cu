// How well a planner of strips tells its plans apart, and a search for better constants: what
// scripts/fit_strips.py compiles, with the planner's header in a form whose constants are variables
// and whose ranking keeps all options.
//
// Standard input has problems and times, as the script writes them; arguments are iterations of the
// search and its seed.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#if defined(DEPTHWISE_NHWC)
#include "kernels/depthwise/nhwc_plan.cuh"
using namespace cf;
using namespace cf::depthwise;
std::string words(const Option &o) {
    char text[160];
    snprintf(text, sizeof text,
             "images=%d tiles=%d rows=%d steps=%d stages=%d blocks=%d lanes=%d group=%d of_sm=%d",
             o.tiling.images, o.tiling.tiles, o.tiling.rows, o.tiling.steps, o.tiling.stages,
             o.blocks, o.tiling.channels / channels_of(o.per_lane), 1 << o.tiling.log_group,
             o.of_sm);
    return text;
}
#elif defined(DEPTHWISE_NCHW)
#include "kernels/depthwise/nchw_plan.cuh"
using namespace cf;
using namespace cf::depthwise_nchw;
std::string words(const Option &o) {
    char text[160];
    snprintf(text, sizeof text,
             "set=%d strip_rows=%d rows=%d columns=%d stages=%d blocks=%d bands=%d", o.tiling.set,
             o.tiling.strip_rows, o.tiling.rows, o.form.columns, o.tiling.stages, o.blocks,
             int(o.on_bands));
    return text;
}
#elif defined(DEPTHWISE_ROWS)
#include "kernels/depthwise/rows_plan.cuh"
using namespace cf;
using namespace cf::depthwise_rows;
std::string words(const Option &o) {
    char text[160];
    snprintf(text, sizeof text, "planes=%d tiles=%d rows=%d steps=%d stages=%d blocks=%d",
             o.tiling.planes, o.tiling.tiles, o.tiling.rows, o.tiling.steps, o.tiling.stages,
             o.blocks);
    return text;
}
#else
#include "kernels/grouped/nhwc_plan.cuh"
using namespace cf;
using namespace cf::grouped;
std::string words(const Option &o) {
    char text[160];
    snprintf(text, sizeof text,
             "boxes=%d images=%d units=%d rows=%d steps=%d warps=%d stages=%d blocks=%d of_sm=%d",
             o.tiling.boxes, o.tiling.images, o.tiling.units, o.tiling.rows, o.tiling.steps,
             o.warps, o.tiling.stages, o.blocks, o.of_sm);
    return text;
}
#endif

namespace {

// Of rows with persistent blocks and others half of the first plans are of either kind.
#if defined(GROUPED_NHWC) || defined(DEPTHWISE_NHWC)
using Options = RankingOfKinds<Option>;
bool kind_of(const Option &option) { return option.persistent; }
#else
using Options = Ranking<Option>;
bool kind_of(const Option &) { return false; }
#endif

#if defined(GROUPED_NHWC)
void options_of(const cf_query &query, Options &all) {
    rank_options(query, instance_of(query.problem), all);
}
double told(const cf_query &query, const Option &option) {
    return estimate(query, instance_of(query.problem), option);
}
#else
void options_of(const cf_query &query, Options &all) { rank_options(query, all); }
double told(const cf_query &query, const Option &option) { return estimate(query, option); }
#endif

// Whether no further block would have fitted, had none asked for more shared memory than it needs.
// Asked of depthwise_nchw alone, some of whose times are older than that.
bool has_exact_room(const cf_query &query, const Option &o) {
#if defined(DEPTHWISE_NCHW)
    const int of_sm = int(ceil_div(o.blocks, query.device.sm_count));
    return StaticShared + ZeroBytes + int64_t(o.tiling.stages) * o.tiling.stage_bytes >
           shared_room(query.device, of_sm + 1);
#else
    return true;
#endif
}

struct Fitted {
    const char *name;
    double *value;
} constants[] = {
#include "constants.inc"
};

struct Timed {
    Option option;
    double us;
};

struct Case {
    std::string name;
    cf_query query = {};
    std::vector<Timed> plans;
    double best = INFINITY;
};

// Those with fewer times say nothing of a choice.
constexpr size_t LeastPlans = 8;
constexpr int Met = 8; // plans that a row's configurations name

// As src/limits.rs has it.
cf_device h200() {
    cf_device d = {};
    d.arch = 90, d.sm_count = 132, d.shared_per_block = 232448, d.shared_per_sm = 233472;
    d.registers_per_sm = 65536, d.l2_bytes = int64_t(60) << 20,
    d.memory_bytes = uint64_t(140) << 30;
    d.clocks_per_us = 1980, d.bytes_per_us = 2.0 * 3201 * 6144 / 8;
    return d;
}

Case read_case() {
    Case one;
    cf_problem &p = one.query.problem;
    std::string storage, math;
    int nhwc;
    std::cin >> one.name >> p.n >> p.c >> p.h >> p.w >> p.k >> p.r >> p.s >> p.p >> p.q >>
        p.stride_h >> p.stride_w;
    std::cin >> p.pad_top >> p.pad_left >> p.groups >> nhwc >> storage >> math;
    p.dilation_h = p.dilation_w = 1;
    p.pad_bottom = p.pad_top, p.pad_right = p.pad_left;
    p.layout = nhwc ? CF_NHWC : CF_NCHW;
    p.storage = storage == "f16" ? CF_STORE_F16 : storage == "bf16" ? CF_STORE_BF16 : CF_STORE_F32;
    p.math = math == "f16"    ? CF_MATH_F16
             : math == "bf16" ? CF_MATH_BF16
             : math == "tf32" ? CF_MATH_TF32
                              : CF_MATH_FP32;
    p.align = 256;
    one.query.device = h200();
    return one;
}

// A plan's words up to those that older times do not have.
std::string shorter(const std::string &plan) { return plan.substr(0, plan.find(" of_sm=")); }

// Times of a case, of a plan several times the one in the middle; says how many are of no plan.
int read_times(Case &one) {
    Options all;
    options_of(one.query, all);
    std::map<std::string, size_t> number;
    for (size_t i = 0; i < all.options.size(); ++i) {
        number.emplace(words(all.options[i]), i);
        if (kind_of(all.options[i])) // older plans are of persistent blocks
            number.emplace(shorter(words(all.options[i])), i);
    }
    std::map<size_t, std::vector<double>> found;
    int times, unknown = 0;
    std::cin >> times;
    while (times-- > 0) {
        double us;
        int any_room;
        std::string plan;
        std::cin >> us >> any_room;
        std::getline(std::cin >> std::ws, plan);
        const auto at = number.find(plan);
        if (at == number.end() || (any_room && !has_exact_room(one.query, all.options[at->second])))
            ++unknown;
        else
            found[at->second].push_back(us);
    }
    for (auto &[at, us] : found) {
        std::sort(us.begin(), us.end());
        one.plans.push_back({all.options[at], us[(us.size() - 1) / 2]});
        one.best = std::min(one.best, one.plans.back().us);
    }
    return unknown;
}

// What a choice loses, as logarithms, means over the cases: by the plan with the least estimate, by
// the fastest of the first eight, and the most by the former; and how far estimates are off, those
// of fast plans most.
struct Score {
    double off, first, met, most;
    double cost() const { return 4 * off * off + 2.5 * first + 6 * met + 0.8 * most * most; }
};

Score score(const std::vector<Case> &cases, bool say) {
    double squares = 0, weights = 0, first = 0, met = 0, most = 0;
    for (const Case &one : cases) {
        std::vector<std::tuple<double, double, bool>> plans; // told, taken, kind
        int of_kind[2] = {};
        for (const Timed &plan : one.plans) {
            const double us = told(one.query, plan.option), off = std::log(us / plan.us);
            const double weight = std::pow(one.best / plan.us, 4) / one.plans.size();
            squares += weight * off * off, weights += weight;
            plans.push_back({us, plan.us, kind_of(plan.option)});
            ++of_kind[kind_of(plan.option)];
        }
        std::sort(plans.begin(), plans.end());
        double of_met = INFINITY;
        int left[2] = {std::max(Met / 2, Met - of_kind[1]), std::max(Met / 2, Met - of_kind[0])};
        for (const auto &[us, took, kind] : plans)
            if (left[kind]-- > 0)
                of_met = std::min(of_met, took);
        const double lost = std::log(std::get<1>(plans[0]) / one.best);
        first += lost, most = std::max(most, lost), met += std::log(of_met / one.best);
        if (say)
            printf("%-62s %8.2f %8.2f %8.2f %8.2f %5zu\n", one.name.c_str(), one.best,
                   std::get<1>(plans[0]), std::get<0>(plans[0]), of_met, plans.size());
    }
    const double count = double(cases.size());
    return {std::sqrt(squares / weights), first / count, met / count, most};
}

void say(const std::vector<Case> &cases) {
    printf("%-62s %8s %8s %8s %8s %5s\n", "us", "fastest", "first", "told", "of 8", "plans");
    const Score all = score(cases, true);
    printf("off %.2f %%; the first plan takes %.1f %% longer than the fastest in the mean, %.1f at "
           "most; the fastest of %d "
           "%.1f %%\n",
           100 * all.off, 100 * std::expm1(all.first), 100 * std::expm1(all.most), Met,
           100 * std::expm1(all.met));
}

// Steps of one to three constants, of which those that gain stay.
void search(const std::vector<Case> &cases, int iterations, unsigned seed) {
    std::mt19937 dice(seed);
    std::normal_distribution<double> normal;
    double least = score(cases, false).cost();
    for (int i = 0; i < iterations; ++i) {
        std::vector<double> before;
        for (const Fitted &one : constants)
            before.push_back(*one.value);
        for (unsigned steps = 1 + dice() % 3; steps > 0; --steps)
            *constants[dice() % before.size()].value *=
                std::exp(normal(dice) * (dice() % 4 ? 0.05 : 0.15));
        const double cost = score(cases, false).cost();
        if (cost < least)
            least = cost;
        else
            for (size_t j = 0; j < before.size(); ++j)
                *constants[j].value = before[j];
    }
}

} // namespace

int main(int, char **arguments) {
    const int iterations = atoi(arguments[1]);
    std::vector<Case> cases;
    int count, unknown = 0;
    size_t plans = 0;
    for (std::cin >> count; count > 0; --count) {
        Case one = read_case();
        unknown += read_times(one);
        if (one.plans.size() < LeastPlans)
            continue;
        plans += one.plans.size();
        cases.push_back(one);
    }
    say(cases);
    printf("%zu plans of %zu problems; %d times are of plans that there are no more\n", plans,
           cases.size(), unknown);
    if (iterations == 0)
        return 0;
    search(cases, iterations, unsigned(atoi(arguments[2])));
    say(cases);
    for (const Fitted &one : constants)
        printf("%s = %.4g\n", one.name, *one.value);
}
