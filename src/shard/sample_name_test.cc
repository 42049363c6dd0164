#include "shard/sample_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

std::string Split(std::string_view name) {
  const std::optional<SampleName> split = SplitSampleName(name);
  return split ? std::string(split->key) + "|" + split->field : "none";
}

TEST(SampleName, KeyEndsAtFirstDotOfBasename) {
  EXPECT_EQ(Split("0001.jpg"), "0001|jpg");
  EXPECT_EQ(Split("a/b.c/0001.seg.png"), "a/b.c/0001|seg.png");
  EXPECT_EQ(Split("v1.0/x.txt"), "v1.0/x|txt");
  EXPECT_EQ(Split("x."), "x|");
  EXPECT_EQ(Split("/abs/x.t"), "/abs/x|t");
}

TEST(SampleName, FieldIsLowerCaseKeyIsNot) {
  EXPECT_EQ(Split("Dir/IMG.Seg.JPG"), "Dir/IMG|seg.jpg");
  EXPECT_EQ(Split("\xc3\x84.\xc3\x84X"), "\xc3\x84|\xc3\x84x") << "only ASCII letters change";
}

TEST(SampleName, KeysOfRawObjectsEndAtTheLastDot) {
  const auto split = [](std::string_view name) {
    const std::optional<SampleName> found = SplitObjectName(name);
    return found ? std::string(found->key) + "|" + found->field : "none";
  };
  EXPECT_EQ(split("scan.2024.1.JPG"), "scan.2024.1|jpg");
  EXPECT_EQ(split("a.b/0001.png"), "a.b/0001|png");
  EXPECT_EQ(split("./a/x.y.png"), "a/x.y|png");
  EXPECT_EQ(split("x."), "x|");
  for (const char* name : {"", "README", "a.b/README", ".hidden.jpg", "__meta__", "a/"}) EXPECT_EQ(split(name), "none");
  EXPECT_EQ(split("__background__/0.jpg"), "__background__/0|jpg") << "a class; __x__ is a rule of tar members";
  EXPECT_EQ(split("./____/0.jpg"), "____/0|jpg");
}

TEST(SampleName, OwnersHaveAWordLess) {
  EXPECT_EQ(OwnerOfKey("d/7.mask"), "d/7");
  EXPECT_EQ(OwnerOfKey("d/7.a.b"), "d/7.a");
  for (const char* key : {"d/7", "d/7.12", "d.x/7", "7.", "", "d/.x"}) EXPECT_EQ(OwnerOfKey(key), "") << key;
}

TEST(SampleName, LeadingDotSlashIsDropped) {
  EXPECT_EQ(Split("./a/x.jpg"), "a/x|jpg");
  EXPECT_EQ(Split("././x.jpg"), "x|jpg");
  EXPECT_EQ(Split("a/./x.jpg"), "a/./x|jpg");
  EXPECT_EQ(Split("../x.jpg"), "../x|jpg");
}

TEST(SampleName, NamesWithoutSample) {
  for (const char* name : {"", "README", "a/README", "a.b/README", ".hidden", "a/.hidden.jpg", "a/", "./", "..",
                           "__meta__", "__MACOSX__/x.jpg", "./__x__/y.jpg", "____/a.jpg"}) {
    EXPECT_EQ(Split(name), "none") << name;
  }
  EXPECT_EQ(Split("__x__.jpg"), "__x__|jpg") << "not a meta name: the component is __x__.jpg";
  EXPECT_EQ(Split("a/__x__/y.jpg"), "a/__x__/y|jpg");
  EXPECT_EQ(Split("___/a.jpg"), "___/a|jpg");
}

TEST(SampleName, ImagesAreKnownByTheirExtension) {
  for (const char* name : {"jpg", "jpeg", "png", "left.png", "webp", "tif", "tiff", "bmp", "gif"})
    EXPECT_TRUE(IsImageField(name)) << name;
  for (const char* name : {"", "txt", "png.txt", "xjpg", "png."}) EXPECT_FALSE(IsImageField(name)) << name;
}

TEST(SampleName, ClassFolderIsFirstComponent) {
  EXPECT_EQ(ClassFolder("cat/001"), "cat");
  EXPECT_EQ(ClassFolder("cat/x/001"), "cat");
  EXPECT_EQ(ClassFolder("001"), "");
  EXPECT_EQ(ClassFolder("/001"), "");
}

}  // namespace
}  // namespace millrace
