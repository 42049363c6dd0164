#include "inspect/sample_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "dataset/testing/index_model.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;
using namespace millrace::testing;  // NOLINT: index_model.h

struct Stored {
  std::string name;
  std::string bytes;
  std::string encoding;
};

// A data set of one sample, and its bytes.
class OneSample {
 public:
  OneSample(DataKind kind, const std::string& key, const std::vector<Stored>& fields, const std::string& label = "",
            const std::vector<ModelValue>& values = {}) {
    Model model{.kind = kind, .objects = {}};
    ModelObject& object = model.objects.emplace_back();
    object.info.key = "o";
    ModelSample& sample = object.samples.emplace_back();
    sample.key = key;
    sample.label = label;
    sample.values = values;
    for (const Stored& field : fields) {
      bytes_.resize((bytes_.size() + 511) / 512 * 512);
      sample.fields.push_back(
          {.name = field.name, .offset = bytes_.size(), .length = field.bytes.size(), .encoding = field.encoding});
      bytes_ += field.bytes;
    }
    object.info.size = bytes_.size();
    absl::StatusOr<std::string> written = WriteIndex(model);
    EXPECT_TRUE(written.ok()) << written.status();
    auto index = Index::FromBytes(*std::move(written));
    EXPECT_TRUE(index.ok()) << index.status();
    index_ = *std::move(index);
    EXPECT_TRUE(index_->Lookup(0, &sample_).ok());
  }

  std::string Class() const { return std::string(ClassOf(sample_, *index_)); }
  std::string Label() const { return LabelOf(sample_, AsBytes(bytes_), *index_); }
  std::string Text() const { return DescribeFields(sample_, AsBytes(bytes_)); }

 private:
  std::unique_ptr<Index> index_;
  IndexedSample sample_;
  std::string bytes_;
};

TEST(LabelOf, TheFolderOfARawObject) {
  const OneSample sample(DataKind::kRawObjects, "cat/x/1", {{"jpg", "x", ""}}, "cat");
  EXPECT_EQ(sample.Label(), "cat");
  EXPECT_EQ(sample.Class(), "cat");
}

TEST(LabelOf, WhatAManifestSays) {
  EXPECT_EQ(OneSample(DataKind::kRawObjects, "cat/1", {{"jpg", "x", ""}}, "dog").Label(), "dog") << "not the folder";
  const OneSample number(DataKind::kRawObjects, "cat/1", {{"jpg", "x", ""}}, "7", {{"cls", "7", "int"}});
  EXPECT_EQ(number.Label(), "7");
  EXPECT_EQ(number.Class(), "7");
  const OneSample none(DataKind::kRawObjects, "cat/1", {{"jpg", "x", ""}}, "", {{"caption", "a cat", "text"}});
  EXPECT_EQ(none.Label(), "a cat");
  EXPECT_EQ(none.Class(), "");
}

TEST(LabelOf, TheNumberThatTheIndexHasOfAShard) {
  const OneSample sample(DataKind::kTar, "k", {{"cls", "7\n", ""}, {"label", "cat", ""}}, "7");
  EXPECT_EQ(sample.Label(), "7");
  EXPECT_EQ(sample.Class(), "7");
}

TEST(LabelOf, TheFieldThatIsCalledSo) {
  EXPECT_EQ(OneSample(DataKind::kTar, "k", {{"cls", "7\n", ""}, {"label", "cat", ""}, {"a.txt", "t", ""}}).Label(),
            "7\n");
  EXPECT_EQ(
      OneSample(DataKind::kTar, "k", {{"a.txt", "t", ""}, {"image/label", "x", ""}, {"label", "cat", ""}}).Label(),
      "cat");
  EXPECT_EQ(OneSample(DataKind::kTar, "k", {{"a.txt", "t", ""}, {"image/label", "dog", ""}}).Label(), "dog");
  EXPECT_EQ(OneSample(DataKind::kTar, "k", {{"cls", "\xff\xfe", ""}}).Label(), "\xff\xfe") << "whatever is in it";
  EXPECT_EQ(OneSample(DataKind::kTfRecord, "k", {{"cls", std::string("\x05\0\0\0", 4), "i4"}}).Label(), "5");
}

TEST(LabelOf, ElseAShortText) {
  EXPECT_EQ(OneSample(DataKind::kTar, "k", {{"npy", "\x93NUMPY", ""}, {"txt", "a caption", ""}}).Label(), "a caption");
  EXPECT_EQ(OneSample(DataKind::kTar, "k", {{"jpg", "text", ""}, {"txt", std::string(2000, 'x'), ""}}).Label(), "");
}

TEST(DescribeFields, TextsAndSizes) {
  const OneSample sample(DataKind::kTfRecord, "k",
                         {{"a", "a caption", "text"},
                          {"b", std::string("\x05\0\0\0", 4), "i4"},
                          {"c", std::string(3000, '\0'), ""},
                          {"d", "xyz", "i4"}});
  const std::string text = sample.Text();
  EXPECT_THAT(text, HasSubstr("a: a caption\nb: 5\nc: bytes, 2.9 KiB\nd: field 'd': "));
  const OneSample listed(DataKind::kRawObjects, "1", {{"npy", std::string(3000, '\0'), ""}}, "",
                         {{"caption", "a cat", "text"}});
  EXPECT_EQ(listed.Text(), "caption: a cat\nnpy: bytes, 2.9 KiB\n") << "what the index holds";
}

}  // namespace
}  // namespace millrace
