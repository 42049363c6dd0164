#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <utility>

#include "mount/read_window.h"
#include "store/testing/scripted_store.h"

namespace millrace {

/// Has a file of 200 MiB whose contents do not matter, and shows which requests are made for it.
class LargeFileTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  static constexpr char kEtag[] = "\"e\"";

  explicit LargeFileTest(uint64_t budget = uint64_t{1} << 30) : memory_(budget) {
    store_.on_get = [](const GetOptions&, int, const absl::AnyInvocable<void()>&, GetCallback& done) { Answer(done); };
  }
  static void Answer(GetCallback& done) { std::move(done)(GetResult{.etag = kEtag, .object_size = 200 * kMiB}); }
  static Patience NoHurry() { return {std::chrono::steady_clock::now() + std::chrono::minutes(5), {}}; }
  uint64_t RequestedBytes() const {
    uint64_t bytes = 0;
    for (const GetOptions& get : store_.gets()) bytes += get.range.length;
    return bytes;
  }

  // The budget comes before the store, which waits for its requests: what those hold is given back until then.
  MemoryBudget memory_;
  ScriptedStore store_;
  BlockTier tier_{store_, memory_, 256 << 20};
  BlockTier around_{store_, memory_, 0};
  MemoryBudget room_{0};
  const Node node_{.key = "k", .size = 200 * kMiB, .etag = kEtag};
};

}  // namespace millrace
