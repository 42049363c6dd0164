#include "pipeline/cache_forecast.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "net/runtime.h"
#include "pipeline/epoch_order.h"
#include "pipeline/testing/token_pair.h"

namespace millrace {
namespace {

// Compares a mix, whose parts come less and more often than once an epoch, with a walk through its epochs.
TEST(CacheForecast, OfAMixCountsEachTimeThatASampleComes) {
  Runtime runtime({.io_threads = 1, .cpu_threads = 1});
  Stores stores(runtime);
  std::vector<uint32_t> lengths;
  for (uint32_t i = 0; i < 300; ++i) lengths.push_back(1 + i * 37 % 90);
  const std::unique_ptr<Dataset> dataset = OpenTokenPair(runtime, stores, "mem://forecast", lengths);
  LoaderOptions options;
  options.batch = 4;
  options.allow_arrays = true;
  options.seed = 3;
  options.shuffle = Shuffle::kGlobal;
  const Source source({*dataset, *dataset});
  for (const bool fresh : {false, true}) {
    options.mix = MixOptions{.length = 900, .stages = {{0, {1, 8}}}, .fresh_passes = fresh};
    const LoaderPlan plan = *Settle(source, options);
    constexpr uint64_t kEpochs = 4;
    const auto found = ForecastCache(source, options, {.capacity_bytes = uint64_t{1} << 30, .epochs = kEpochs});
    ASSERT_TRUE(found.ok()) << found.status();
    std::set<uint64_t> seen;
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      EpochOrder order(plan, epoch);
      uint64_t bytes = 0;
      uint64_t again = 0;
      for (uint64_t turn = 0; turn < order.turns(); ++turn) {
        const uint64_t item = order.RowAt(turn / options.batch * options.batch, turn % options.batch).draw.item;
        IndexedSample sample;
        ASSERT_TRUE(source.Lookup(item, &sample).ok());
        bytes += sample.span.length;
        again += seen.insert(item).second ? 0 : sample.span.length;
      }
      EXPECT_EQ(found->epochs[epoch].bytes, bytes) << epoch;
      for (const uint64_t hits :
           {found->epochs[epoch].hits.ours, found->epochs[epoch].hits.lru, found->epochs[epoch].hits.optimum})
        EXPECT_EQ(hits, again) << "all fits";
    }
  }
}

}  // namespace
}  // namespace millrace
