#include "dataset/labels_file.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "dataset/dataset.h"
#include "dataset/label_rows.h"
#include "dataset/testing/data_place.h"
#include "shard/tar_format.h"
#include "shard/testing/tar_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A shard whose samples have a class of their own, and raw objects in class folders.
class LabelsFileTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  LabelsFileTest() : DataPlace(GetParam()) {
    std::string tar;
    for (const char* name : {"a/1.jpg", "a/1.cls", "2.cls", "2.jpg", "2.txt", "3.jpg"})
      tar += testing::Member(name, name);
    PutAt("tar/shard.tar", tar + testing::End());
    for (const char* name : {"raw/x/1.jpg", "raw/y/2.jpg", "raw/y/3.jpg"}) PutAt(name, name);
  }

  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& data, std::string_view text,
                                                const std::string& name = "labels.csv", std::string key = "",
                                                std::string label = "") {
    PutAt(name, text);
    OpenOptions options = options_;
    options.labels = LabelsFile{.uri = Uri(name), .key_column = std::move(key), .label_column = std::move(label)};
    return Dataset::Open(runtime_, stores_, Uri(data), options);
  }
  std::vector<std::string> ReadLabelled(const std::string& data, std::string_view text,
                                        const std::string& name = "labels.csv", std::string key = "",
                                        std::string label = "") {
    const auto dataset = Open(data, text, name, std::move(key), std::move(label));
    if (!dataset.ok()) return {dataset.status().ToString()};
    std::vector<std::string> out = Read(**dataset);
    IndexedSample sample;
    for (uint64_t i = 0; i < out.size(); ++i) {
      EXPECT_TRUE((*dataset)->index().Lookup(i, &sample).ok());
      if (sample.label) out[i] += " of " + (*dataset)->index().class_counts()[*sample.label].name;
      if (!sample.in_labels_file) out[i] += " (missing)";
    }
    EXPECT_TRUE((*dataset)->index().Verify().ok());
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, LabelsFileTest, ::testing::Values("mem", "file"),
                         [](const auto& i) { return i.param; });

TEST_P(LabelsFileTest, NumbersTakeThePlaceOfStoredClasses) {
  EXPECT_THAT(ReadLabelled("tar", "key,label\n3,10\na/1,7\n2,-1\n"),
              ElementsAre("a/1: cls=7 jpg=a/1.jpg of 7", "2: cls=-1 jpg=2.jpg txt=2.txt", "3: cls=10 jpg=3.jpg of 10"));
  EXPECT_THAT(ReadLabelled("raw", "id;cls\nx/1;4\ny/2;4\n"),
              ElementsAre("x/1: cls=4 jpg=raw/x/1.jpg of 4", "y/2: cls=4 jpg=raw/y/2.jpg of 4",
                          "y/3: jpg=raw/y/3.jpg (missing)"));
}

TEST_P(LabelsFileTest, NamesAreNumberedInBytewiseOrder) {
  EXPECT_THAT(
      ReadLabelled("tar", "key,class\na/1,dog\n2,cat\n3,dog\n"),
      ElementsAre("a/1: cls=1 jpg=a/1.jpg of dog", "2: cls=0 jpg=2.jpg txt=2.txt of cat", "3: cls=1 jpg=3.jpg of dog"));
  EXPECT_THAT((*Open("tar", "key,class\na/1,dog\n2,cat\n"))->index().class_names(), ElementsAre("cat", "dog"));
  EXPECT_THAT(ReadLabelled("raw", "key,class\nx/1,dog\ny/3,cat\n"),
              ElementsAre("x/1: cls=1 jpg=raw/x/1.jpg of dog", "y/2: jpg=raw/y/2.jpg (missing)",
                          "y/3: cls=0 jpg=raw/y/3.jpg of cat"));
}

TEST_P(LabelsFileTest, FloatsAndFurtherColumns) {
  EXPECT_THAT(
      ReadLabelled("tar", "key,score,txt,n\na/1,0.50,A,1\n2,3,,2\n3,1e3,C,\n", "l.csv", "", "score"),
      ElementsAre("a/1: cls=0.5 jpg=a/1.jpg n=1 txt=A", "2: cls=3 jpg=2.jpg n=2", "3: cls=1000 jpg=3.jpg txt=C"));
  EXPECT_THAT(ReadLabelled("raw", "{\"key\":\"y/2\",\"boxes\":[[1,2]]}\n{\"key\":\"y/3\"}\n", "l.jsonl"),
              ElementsAre("x/1: cls=0 jpg=raw/x/1.jpg of x (missing)", "y/2: boxes=[[1,2]] cls=1 jpg=raw/y/2.jpg of y",
                          "y/3: cls=1 jpg=raw/y/3.jpg of y (missing)"))
      << "a file without labels leaves classes as they are";
  EXPECT_THAT(ReadLabelled("tar", "{\"key\":3,\"label\":1.5}\n{\"key\":2,\"label\":2}\n", "l.jsonl").back(),
              HasSubstr("3: cls=1.5 "));
}

TEST_P(LabelsFileTest, NamesOfFilesAreKeysIfNoKeyFits) {
  EXPECT_THAT(
      ReadLabelled("tar", "filename,label\na/1.jpg,7\n./2.jpg,8\n3.mask.png,9\n"),
      ElementsAre("a/1: cls=7 jpg=a/1.jpg of 7", "2: cls=8 jpg=2.jpg txt=2.txt of 8", "3: cls=9 jpg=3.jpg of 9"));
  const std::string uri = Uri("raw/y/3.jpg");
  EXPECT_THAT(ReadLabelled("raw", "path,label\n" + uri + ",5\n").back(), HasSubstr(" of 5"));
  EXPECT_THAT(ReadLabelled("tar", "filename,label\na/1.jpg,7\n2,8\n").front(), HasSubstr("(missing)"))
      << "some keys fit as they are written";
}

// Keys have dots in shards that Millrace wrote; the names of the packed files then end at their last dot.
TEST_P(LabelsFileTest, KeysWithDotsInTarShards) {
  const std::string escaped = testing::Pax({fmt::format("{}={}", kTarCommentKeyword, kTarEscapedKeys)}, 'g');
  PutAt("dots/shard.tar",
        escaped + testing::Member("a/1%2E5.jpg", "x") + testing::Member("2.jpg", "y") + testing::End());
  for (const char* text : {"key,label\na/1.5,7\n2,8\n", "filename,label\na/1.5.jpg,7\n2.jpg,8\n"})
    EXPECT_THAT(ReadLabelled("dots", text), ElementsAre("a/1.5: cls=7 jpg=x of 7", "2: cls=8 jpg=y of 8")) << text;
}

TEST_P(LabelsFileTest, FewRowsOfManySamplesAreFoundInEitherForm) {
  std::string tar;
  for (int number = 0; number < 3000; ++number) tar += testing::Member(fmt::format("{:04}.jpg", number), "x");
  PutAt("tar/shard.tar", tar + testing::End());
  for (const char* text : {"filename,label\n0001.jpg,7\n", "key,label\n0001,7\n"}) {
    const std::vector<std::string> read = ReadLabelled("tar", text);
    ASSERT_EQ(read.size(), 3000) << read.front();
    EXPECT_EQ(read[1], "0001: cls=7 jpg=x of 7");
    EXPECT_THAT(read[2], HasSubstr("(missing)"));
  }
}

TEST_P(LabelsFileTest, OrderAndPlacesStayAsTheyAre) {
  const auto plain = OpenAt("tar");
  const auto labelled = Open("tar", "key,label\na/1,7\n2,8\n3,9\n");
  ASSERT_TRUE(labelled.ok()) << labelled.status();
  EXPECT_EQ((*labelled)->index().fingerprint(), (*plain)->index().fingerprint());
  EXPECT_EQ((*labelled)->index().total_bytes(), (*plain)->index().total_bytes());
  const uint64_t id = (*labelled)->labels_id();
  EXPECT_EQ((*Open("tar", "key,label\na/1,7\n2,8\n3,9\n", "labels.csv", "key"))->index().size(), 3u);
  PutAt("labels.csv", "key,label\na/1,7\n2,8\n3,99\n");
  OpenOptions options = options_;
  options.labels = LabelsFile{.uri = Uri("labels.csv")};
  const auto again = Dataset::Open(runtime_, stores_, Uri("tar"), options);
  ASSERT_TRUE(again.ok());
  EXPECT_NE((*again)->labels_id(), id) << "another version";
  EXPECT_THAT(Read(**again).back(), HasSubstr("cls=99"));
}

TEST_P(LabelsFileTest, SaysWhatIsWrong) {
  const auto error = [&](std::string_view text, const std::string& name = "labels.csv") {
    return Open("tar", text, name).status().ToString();
  };
  EXPECT_THAT(error("key,label\n2,1\n3,1\n2,2\n"), HasSubstr("labels.csv: lines 2 and 4 have the same key"));
  EXPECT_THAT(error("key,label\n7,1\nb/1,1\n"), HasSubstr("none of its 2 rows has the key of a sample"));
  EXPECT_THAT(error("key,label\n7,1\nb/1,1\n"),
              HasSubstr("the first key is '7', and the first sample is called 'a/1'"));
  EXPECT_THAT(error("key\n2\n"), HasSubstr("no column but that of the keys"));
  EXPECT_THAT(error("name,label\n2,1\n"), HasSubstr("--key-column"));
  EXPECT_THAT(Open("tar", "key,label,cls\n2,1,1\n", "labels.csv", "", "label").status().ToString(),
              HasSubstr("a column 'cls' beside the label"));
  EXPECT_THAT(error("key,label\n2,007\n"), HasSubstr("007"));
  EXPECT_THAT(error("key,label\n2,1,3\n"), HasSubstr("line 2: 3 cells"));
  EXPECT_THAT(error("x", "labels.txt"), HasSubstr("must end with .csv"));
  OpenOptions options = options_;
  options.labels = LabelsFile{.uri = Uri("no.csv")};
  EXPECT_TRUE(absl::IsNotFound(Dataset::Open(runtime_, stores_, Uri("tar"), options).status()));
}

TEST(LabelRows, FindsWhatAMapFinds) {
  MemoryBudget memory(64 << 20);
  for (const uint64_t rows : {0u, 1u, 2u, 7u, 8u, 9u, 5000u}) {
    absl::StatusOr<LabelRows> labels = LabelRows::Create(rows, memory);
    ASSERT_TRUE(labels.ok());
    std::map<std::string, std::string> model;
    for (uint64_t i = 0; i < rows; ++i) {
      const std::string key = fmt::format("{}/{}", i % 7, i);
      model[key] = fmt::format("{:x}", HashKey(1, {i}));
      const ManifestCell cells[] = {{.column = 3, .text = model[key]}};
      ASSERT_TRUE(labels->Add(key, {.path = key, .line = i + 2, .label = key, .cells = cells}).ok());
    }
    ASSERT_FALSE(labels->Sort());
    LabelRows::Row row;
    size_t place = 0;
    for (const auto& [key, text] : model) {
      ASSERT_TRUE(labels->Find(key, &row, &place)) << key;
      EXPECT_EQ(row.label, key);
      EXPECT_EQ(row.cells.front().text, text);
      EXPECT_EQ(labels->LineAt(place), row.line);
      EXPECT_FALSE(labels->Find(key + "x", &row, &place));
    }
  }
  EXPECT_TRUE(absl::IsResourceExhausted(LabelRows::Create(uint64_t{1} << 30, memory).status()));
  EXPECT_EQ(memory.used(), 0u);
}

}  // namespace
}  // namespace millrace
