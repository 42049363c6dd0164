#include "dataset/mds_check.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

// If an index.json was listed and is gone when it is read, that is not an empty index.json.
TEST(MdsIndexes, AnIndexThatCannotBeReadListsNotNothing) {
  Runtime runtime;
  Stores stores(runtime);
  const Location data = *stores.Open("mem://data/set");
  MdsIndexes indexes(data);
  bool hashed = true;
  EXPECT_TRUE(indexes.ScannerFor("a.mds", &hashed).ok());
  EXPECT_FALSE(hashed);
  EXPECT_TRUE(indexes.ScannerFor("b.mds", &hashed).ok()) << "also if it is not read again";
  EXPECT_TRUE(absl::IsNotFound(indexes.Check({"index.json"}, {{"a.mds", 5}})));
}

}  // namespace
}  // namespace millrace
