#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "store/testing/forwarding_store.h"

namespace millrace {

/// Counts the reads of another store.
class CountingStore final : public ForwardingStore {
 public:
  /// `reads` must outlive it.
  CountingStore(std::unique_ptr<ObjectStore> below, std::atomic<int>& reads)
      : ForwardingStore(std::move(below)), reads_(reads) {}

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    ++reads_;
    below().Get(std::move(key), into, std::move(options), std::move(done));
  }

 private:
  std::atomic<int>& reads_;
};

}  // namespace millrace
