#include "mount/attribute_table.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

void SetMode(AttributeTable& table, const std::string& key, mode_t mode) {
  table.Change(key, [&](FileAttributes& attributes) { attributes.mode = mode; });
}

TEST(AttributeTable, KeepsWhatWasSetUntilItIsRemoved) {
  AttributeTable table;
  EXPECT_FALSE(table.Find("a"));
  SetMode(table, "a", 0600);
  table.Change("a", [](FileAttributes& attributes) { attributes.uid = 7; });
  EXPECT_EQ(table.Find("a")->mode, 0600u);
  EXPECT_EQ(table.Find("a")->uid, 7u);
  EXPECT_FALSE(table.Find("a")->gid);
  SetMode(table, "b", 0755);
  table.Rename("a", "b");
  EXPECT_FALSE(table.Find("a"));
  EXPECT_EQ(table.Find("b")->mode, 0600u);
  table.Rename("none", "b");  // a file without any takes its place
  EXPECT_FALSE(table.Find("b"));
  table.Remove("b");
}

TEST(AttributeTable, AFolderTakesThoseBelowItAlong) {
  AttributeTable table;
  for (const char* key : {"a/", "a/b/", "a/b/c", "a-1", "z/"}) SetMode(table, key, 0700);
  table.RenameFolder("a/", "z/");
  for (const char* key : {"z/", "z/b/", "z/b/c", "a-1"}) EXPECT_TRUE(table.Find(key)) << key;
  for (const char* key : {"a/", "a/b/", "a/b/c"}) EXPECT_FALSE(table.Find(key)) << key;
  table.RenameFolder("none/", "z/");
  EXPECT_FALSE(table.Find("z/"));
}

TEST(AttributeTable, ForgetsWhatWasNotLookedAtForLongest) {
  AttributeTable table(2);
  SetMode(table, "a", 1);
  SetMode(table, "b", 2);
  EXPECT_TRUE(table.Find("a"));
  SetMode(table, "c", 3);
  EXPECT_TRUE(table.Find("a"));
  EXPECT_FALSE(table.Find("b"));
  EXPECT_TRUE(table.Find("c"));
}

}  // namespace
}  // namespace millrace
