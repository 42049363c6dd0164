#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "store/object_store.h"

/// These tests are the contract of ObjectStore, in the contract_*.cc beside. A test program links this library and
/// instantiates the suite for its stores:
///
///   INSTANTIATE_TEST_SUITE_P(Memory, StoreContract, ::testing::Values(StoreKind{"Memory", MakeMemoryPlace}),
///   StoreKindName);

namespace millrace {

/// Provides a place for objects, empty when made.
class StorePlace {
 public:
  virtual ~StorePlace() = default;

  /// Opens a store over this place. A store that keeps objects itself (memory) is a new and empty one each time.
  virtual std::unique_ptr<ObjectStore> Open() = 0;

  /// Opens a store over a bucket or folder that does not exist; null if there is no such thing.
  virtual std::unique_ptr<ObjectStore> OpenMissing() = 0;

  /// Returns true if it refuses keys such as "a//b" and "..".
  virtual bool is_folder() const { return false; }
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StorePlace>()> make;
};

inline void PrintTo(const StoreKind& kind, std::ostream* out) {
  *out << kind.name;
}
inline std::string StoreKindName(const ::testing::TestParamInfo<StoreKind>& info) {
  return info.param.name;
}

/// Returns bytes that depend on the seed only.
std::string RandomText(size_t size, uint64_t seed = 1);

class StoreContract : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override;
  void TearDown() override;

  ObjectStore& store() { return *store_; }

  /// Returns what the store holds under `key`, or a text that begins with "error".
  std::string Contents(const std::string& key);
  void PutText(const std::string& key, std::string_view text);
  absl::StatusOr<std::string> GetText(const std::string& key, ByteRange range, GetOptions options = {});
  std::vector<std::string> Keys(const std::string& prefix = "");

  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<ObjectStore> store_;
};

/// Tests what also holds for stores that copy by themselves (ObjectStore::CopiesFrom).
class StoreCopyContract : public StoreContract {};

}  // namespace millrace
