// How long the plan takes for an item: streaming (a cursor, as the pipeline reads) and at random (At and Where). Prints
// one line for each policy, next to the bounds that it must keep. Times are the thread's own, so that other load
// matters less, and the best of three. Usage: plan_bench [samples]; default 10^9.

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <numeric>
#include <utility>

#include "base/rng.h"
#include "plan/mix.h"
#include "plan/plan.h"
#include "plan/selection.h"

namespace millrace {
namespace {

constexpr uint64_t kItems = 5'000'000;

double Nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// The best of three: what else runs on the machine, or on its host, makes it slower only.
template <typename Function>
double NanosecondsPerItem(uint64_t items, Function function) {
  double best = std::numeric_limits<double>::infinity();
  for (int run = 0; run < 3; ++run) {
    const double start = Nanoseconds();
    function();
    best = std::min(best, (Nanoseconds() - start) / static_cast<double>(items));
  }
  return best;
}

/// Keeps the compiler from leaving out what is measured.
volatile uint64_t sink;

/// `make` makes the plan, whose positions are `samples` and which is part of what the first item costs.
template <typename Make>
void MeasurePlan(const char* name, uint64_t samples, double at_bound, Make make) {
  const uint64_t items = samples < kItems ? samples : kItems;
  const double start = Nanoseconds();
  const Plan plan = make();
  sink = Plan::Cursor(plan, 0).Next();
  const double first = (Nanoseconds() - start) / 1000;

  const double streaming = NanosecondsPerItem(items, [&] {
    uint64_t sum = 0;
    Plan::Cursor cursor(plan, 0);
    for (uint64_t i = 0; i < items; ++i) sum += cursor.Next();
    sink = sum;
  });
  const double rank_of_8 = NanosecondsPerItem(items / 8, [&] {
    uint64_t sum = 0;
    Plan::Cursor rank(plan, 3, 8);
    for (uint64_t i = 0; i < items / 8; ++i) sum += rank.Next();
    sink = sum;
  });
  // Each index depends on the result before, so that calls do not overlap.
  const double at = NanosecondsPerItem(items / 10, [&] {
    uint64_t index = 0;
    for (uint64_t i = 0; i < items / 10; ++i) index = Mix64(plan.At(index) + i) % samples;
    sink = index;
  });
  const double where = NanosecondsPerItem(items / 10, [&] {
    uint64_t index = 0;
    for (uint64_t i = 0; i < items / 10; ++i)
      index = Mix64(plan.PositionOf(Draw{index % plan.items(), 0}) + i) % samples;
    sink = index;
  });
  std::printf("%-28s %8.1f us %8.1f ns %10.1f ns %8.1f ns %8.1f ns  (bounds: 1000 us, 25 ns, -, %.0f ns)\n", name,
              first, streaming, rank_of_8, at, where, at_bound);
}

void Measure(const char* name, uint64_t samples, const OrderPolicy& policy, double at_bound) {
  MeasurePlan(name, samples, at_bound, [&] { return Plan(samples, policy, 42, 0); });
}

/// Mixes so many parts of equal size and policy, and weights from 1 to 3.
void MeasureMix(const char* name, uint64_t parts, uint64_t samples, const OrderPolicy& policy) {
  Mix mix;
  mix.parts.assign(parts, {samples / parts, policy});
  mix.length = samples;
  mix.stages.emplace_back();
  for (uint64_t part = 0; part < parts; ++part) mix.stages[0].weights.push_back(1 + part % 3);
  MeasurePlan(name, samples, 2000, [&] { return Plan(mix, 42, 0); });
}

/// Measures a subset of one in so many numbers: streaming its members, and looking them up.
void MeasureSelection(const char* name, uint64_t samples, uint64_t one_in) {
  const double start = Nanoseconds();
  Selection::Builder builder(samples);
  for (uint64_t sample = 0; sample < samples; ++sample) {
    if (Mix64(sample) % one_in == 0) builder.Add(sample);
  }
  const Selection selection = std::move(builder).Finish();
  const double built = (Nanoseconds() - start) / static_cast<double>(samples);
  const Plan plan(selection.size(), {.shuffle = Shuffle::kWindow, .extent = 16, .window = 192, .lanes = 64}, 42, 0);
  const auto stream = [&](const Selection* subset) {
    return NanosecondsPerItem(kItems, [&] {
      constexpr uint64_t kBlock = 64;
      std::array<uint64_t, kBlock> block;
      uint64_t sum = 0;
      Plan::Reader reader(plan, 1, subset);
      for (uint64_t i = 0; i < kItems; i += kBlock) {
        std::iota(block.begin(), block.end(), i % (plan.size() - kBlock));
        reader.Map(block);
        for (const uint64_t number : block) sum += number;
      }
      sink = sum;
    });
  };
  const double bare = stream(nullptr);
  const double mapped = stream(&selection);
  const double where = NanosecondsPerItem(kItems, [&] {
    uint64_t number = 0;
    for (uint64_t i = 0; i < kItems; ++i) number = Mix64(selection.RankOf(number) + i) % samples;
    sink = number;
  });
  const double at = NanosecondsPerItem(kItems, [&] {
    uint64_t rank = 0;
    for (uint64_t i = 0; i < kItems; ++i) rank = Mix64(selection.At(rank) + i) % selection.size();
    sink = rank;
  });
  std::printf(
      "%-28s streaming %6.1f ns (bound: 25 ns), without subset %6.1f ns, at random At %6.1f ns, Where %6.1f ns, built "
      "in %.1f ns a number, %.2f bits a number\n",
      name, mapped, bare, at, where, built,
      static_cast<double>(selection.memory_bytes()) * 8 / static_cast<double>(samples));
}

OrderPolicy Window(uint64_t extent, uint64_t window) {
  return {.shuffle = Shuffle::kWindow, .extent = extent, .window = window, .lanes = 64};
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using millrace::Measure;
  using millrace::Window;
  const uint64_t samples = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000'000;
  if (argc > 2 || samples < 1000 || samples > millrace::Plan::kMaxSamples) {
    std::fprintf(stderr, "usage: plan_bench [samples], at least 1000\n");
    return 2;
  }
  std::printf("%lu samples\n%-28s %11s %11s %13s %11s %11s\n", samples, "order", "first item", "streaming",
              "rank 3 of 8", "At", "Where");
  Measure("global", samples, {.shuffle = millrace::Shuffle::kGlobal}, 100);
  Measure("window, 115 KB (b=13)", samples, Window(13, 192), 1000);
  Measure("window, b=16 K=192", samples, Window(16, 192), 1000);
  Measure("window, 10 KB (b=157)", samples, Window(157, 192), 1000);
  Measure("window, 1 KB (b=1573)", samples, Window(1573, 192), 1000);
  Measure("window, raw 115 KB (b=1)", samples, Window(1, 2304), 1000);
  Measure("window, raw 1 KB (b=1)", samples, Window(1, 262144), 1000);
  using millrace::MeasureMix;
  MeasureMix("mix of 2, window", 2, samples, Window(16, 192));
  MeasureMix("mix of 10, window", 10, samples, Window(16, 192));
  MeasureMix("mix of 10, global", 10, samples, {.shuffle = millrace::Shuffle::kGlobal});
  MeasureMix("1000 classes, window", 1000, samples, Window(16, 192));
  MeasureMix("1000 classes, global", 1000, samples, {.shuffle = millrace::Shuffle::kGlobal});
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf("largest RSS of the process: %.1f MB (bound: 100 MB)\n", static_cast<double>(usage.ru_maxrss) / 1000);
  millrace::MeasureSelection("subset: one in 2", samples, 2);
  millrace::MeasureSelection("subset: one in 100", samples, 100);
  millrace::MeasureSelection("subset: one in 10,000", samples, 10'000);
  return 0;
}
