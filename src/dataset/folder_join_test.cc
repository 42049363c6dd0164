#include "dataset/folder_join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dataset/testing/data_place.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(FolderJoin, TakesTwoPatternsAndMore) {
  const auto join = FolderJoin::Parse("s3://b/voc/{image=JPEGImages/{}.jpg,mask=Masks/{}_m.png}");
  ASSERT_TRUE(join.ok() && join->has_value()) << join.status();
  EXPECT_EQ((*join)->folder(), "s3://b/voc/");
  const auto other = FolderJoin::Parse("s3://c/{image=JPEGImages/{}.jpg,mask=Masks/{}_m.png}");
  EXPECT_EQ((*join)->Id(), (*other)->Id());
  const auto renamed = FolderJoin::Parse("s3://b/voc/{photo=JPEGImages/{}.jpg,mask=Masks/{}_m.png}");
  EXPECT_NE((*join)->Id(), (*renamed)->Id());
  EXPECT_EQ((**FolderJoin::Parse("{a=x/{},b=y/{}}")).folder(), ".");
}

TEST(FolderJoin, OtherUrisAreNone) {
  for (const char* uri : {"s3://b/voc", "s3://b/{a,b}", "s3://b/{a/{}.jpg,b/{}.png}", "s3://b/{a=1,b=2}", "s3://b/x{}",
                          "s3://b/{x=1..3}", "x{a=p/{},b=q/{}}", "{}", "}", ""}) {
    const auto join = FolderJoin::Parse(uri);
    EXPECT_TRUE(join.ok() && !join->has_value()) << uri << " " << join.status();
  }
}

TEST(FolderJoin, RefusesWhatNamesNoFiles) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"/d/{a=x/{}.jpg}", "2 to 32 are joined"},          {"/d/{a=x/{}.jpg,a=y/{}.png}", "names a field twice"},
      {"/d/{a=x/{}.jpg,b=x/{}.jpg}", "is there twice"},   {"/d/{a=x/{}.jpg,=y/{}.png}", "names no field"},
      {"/d/{a=x/{}/{}.jpg,b=y/{}.png}", "another mark"},  {"/d/{a=x/*/{}.jpg,b=y/{}.png}", "another mark"},
      {"/d/{a=../x/{}.jpg,b=y/{}.png}", "no path below"}, {"/d/{a=/x/{}.jpg,b=y/{}.png}", "no path below"},
      {"/d/{a=.x/{}.jpg,b=y/{}.png}", "no path below"},
  };
  for (const auto& [uri, why] : cases) {
    const auto join = FolderJoin::Parse(uri);
    EXPECT_TRUE(absl::IsInvalidArgument(join.status())) << uri;
    EXPECT_THAT(join.status().ToString(), HasSubstr(why)) << uri;
  }
}

class FolderJoinTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  FolderJoinTest() : DataPlace(GetParam()) {}

  absl::StatusOr<std::unique_ptr<Dataset>> Open() {
    return Dataset::Open(runtime_, stores_, Uri("{image=p/{}.jpg,mask=m/{}.png,note=notes/{}.txt}"), options_);
  }
  std::vector<std::string> OpenAndRead() {
    const auto dataset = Open();
    return dataset.ok() ? Read(**dataset) : std::vector<std::string>{dataset.status().ToString()};
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, FolderJoinTest, ::testing::Values("mem", "file"),
                         [](const auto& i) { return i.param; });

TEST_P(FolderJoinTest, FilesOfOneNameAreASample) {
  for (const auto& [key, text] : std::vector<std::pair<std::string, std::string>>{{"p/1.jpg", "one"},
                                                                                  {"p/cat/2.jpg", "two"},
                                                                                  {"p/3.jpg", "alone"},
                                                                                  {"p/a.jpg", "last"},
                                                                                  {"p/a-b.jpg", "before"},
                                                                                  {"m/1.png", "mask 1"},
                                                                                  {"m/cat/2.png", ""},
                                                                                  {"m/4.png", "alone"},
                                                                                  {"m/a.png", "am"},
                                                                                  {"m/a-b.png", "abm"},
                                                                                  {"notes/1.txt", "n1"},
                                                                                  {"notes/a.txt", "na"},
                                                                                  {"notes/a-b.txt", "nab"},
                                                                                  {"notes/cat/2.txt", "n2"},
                                                                                  {"other/1.jpg", "x"}}) {
    PutAt(key, text);
  }
  EXPECT_THAT(OpenAndRead(), ElementsAre("1: image=one mask=mask 1 note=n1", "a-b: image=before mask=abm note=nab",
                                         "a: image=last mask=am note=na", "cat/2: cls=0 image=two mask= note=n2"));
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_FALSE((*dataset)->built()) << "the index is there by now";
  EXPECT_THAT((*dataset)->index().field_names(), ElementsAre("cls", "image", "mask", "note"));
  EXPECT_THAT((*dataset)->index().image_fields(), ElementsAre("image", "mask"));
  PutAt("p/5.jpg", "new");  // its mask and note are missing: no sample
  EXPECT_TRUE(Open().ok());
  PutAt("m/5.png", "new");
  PutAt("notes/5.txt", "new");
  EXPECT_THAT(Open().status().ToString(), HasSubstr("it was added"));
}

TEST_P(FolderJoinTest, SamplesThatWereReadForTheirChecksumsAreNotReadAgain) {
  for (const char* key : {"p/1.jpg", "m/1.png", "notes/1.txt", "p/2.jpg", "m/2.png", "notes/2.txt"}) PutAt(key, key);
  EXPECT_EQ((*Open())->index().samples_without_crc(), 2u);
  options_.raw.all = true;
  const auto read = Open();
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->index().samples_without_crc(), 0u);
  EXPECT_EQ((*read)->built()->reused_objects, 0u);
  for (const char* key : {"p/3.jpg", "m/3.png", "notes/3.txt"}) PutAt(key, key);
  options_.raw.all = false;
  options_.rebuild = true;
  EXPECT_EQ((*Open())->index().samples_without_crc(), 1u);
  options_.raw.all = true;
  const auto again = Open();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ((*again)->built()->reused_objects, 2u);
  EXPECT_EQ((*again)->index().samples_without_crc(), 0u);
}

TEST_P(FolderJoinTest, AFieldWithoutFilesIsAnError) {
  PutAt("p/1.jpg", "one");
  PutAt("m/1.png", "mask");
  const absl::Status status = Open().status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.ToString(), HasSubstr("for the field 'note'"));
  EXPECT_THAT(status.ToString(), HasSubstr("notes/{}.txt"));
}

}  // namespace
}  // namespace millrace
