#include "dataset/manifest_set.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "base/crypto.h"
#include "dataset/dataset.h"
#include "dataset/testing/data_place.h"
#include "shard/testing/token_builder.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Provides objects below "set/", and a manifest there.
class ManifestSetTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  ManifestSetTest() : DataPlace(GetParam()) {
    for (const char* name : {"set/a/1.jpg", "set/a/2.jpg", "set/b/3.png", "set/not-listed.jpg"}) Put(name, name);
  }

  void Put(const std::string& key, std::string_view bytes) { PutAt(key, bytes); }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& manifest) { return OpenAt("set/" + manifest); }
  std::string ErrorOf(const std::string& manifest, std::string_view text) {
    Put("set/" + manifest, text);
    return Open(manifest).status().ToString();
  }
  // Returns every sample, read through the index, with its class.
  std::vector<std::string> Read(const Dataset& dataset) {
    std::vector<std::string> out = DataPlace::Read(dataset);
    IndexedSample sample;
    for (uint64_t i = 0; i < dataset.index().size(); ++i) {
      EXPECT_TRUE(dataset.index().Lookup(i, &sample).ok());
      if (sample.label) out[i] += " of " + dataset.index().class_counts()[*sample.label].name;
    }
    return out;
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, ManifestSetTest, ::testing::Values("mem", "file"),
                         [](const auto& i) { return i.param; });

TEST_P(ManifestSetTest, ColumnsOfTheUsersChoice) {
  Put("set/train.csv", "img,target\na/1.jpg,7\nb/3.png,8\n");
  EXPECT_THAT(Open("train.csv").status().ToString(), HasSubstr("path_column"));
  const auto open = [&](const ManifestColumns& columns) {
    OpenOptions options = options_;
    options.columns = columns;
    return Dataset::Open(runtime_, stores_, Uri("set/train.csv"), options);
  };
  auto dataset = open({.path = "img"});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Read(**dataset),
              ElementsAre("a/1: cls=0 jpg=set/a/1.jpg target=7 of a", "b/3: cls=1 png=set/b/3.png target=8 of b"));
  dataset = open({.path = "img", .label = "target"});
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE((*dataset)->built()) << "that index had no such labels";
  EXPECT_THAT(Read(**dataset), ElementsAre("a/1: cls=7 jpg=set/a/1.jpg of 7", "b/3: cls=8 png=set/b/3.png of 8"));
  dataset = open({.path = "img", .label = "target"});
  EXPECT_FALSE((*dataset)->built());
  EXPECT_FALSE((*Open("train.csv"))->built()) << "the index knows its columns";
  OpenOptions options = options_;
  options.columns.path = "img";
  EXPECT_THAT(Dataset::Open(runtime_, stores_, Uri("set/a"), options).status().ToString(),
              HasSubstr("only a manifest"));
}

TEST_P(ManifestSetTest, SeveralColumnsOfPathsAreOneSample) {
  Put("set/m/1.png", "mask 1");
  Put("set/m/x.png", "");
  Put("set/notes/1.txt", "n1");
  Put("set/list.csv", fmt::format("img,mask,note,label,width\na/1.jpg,m/1.png,{}/notes/1.txt,cat,10\n"
                                  "b/3.png,m/x.png,notes/1.txt,dog,20\n",
                                  Uri("set")));
  Put("set/list.jsonl", R"({"img": "a/1.jpg", "mask": "m/1.png", "note": "notes/1.txt", "label": "cat", "width": 10})"
                        "\n"
                        R"({"img": "b/3.png", "mask": "m/x.png", "note": "notes/1.txt", "label": "dog", "width": 20})");
  options_.columns.path = "image=img,mask=mask,text=note";
  for (const char* name : {"list.csv", "list.jsonl"}) {
    auto dataset = Open(name);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    const std::vector<std::string> samples = {"a/1: cls=0 image=set/a/1.jpg mask=mask 1 text=n1 width=10 of cat",
                                              "b/3: cls=1 image=set/b/3.png mask= text=n1 width=20 of dog"};
    EXPECT_EQ(Read(**dataset), samples);
    EXPECT_THAT((*dataset)->index().field_names(), ElementsAre("cls", "image", "mask", "text", "width"));
    EXPECT_THAT((*dataset)->index().image_fields(), ElementsAre("image", "mask"));
    dataset = Open(name);
    EXPECT_FALSE((*dataset)->built());
    OpenOptions usual = options_;
    usual.columns.path.clear();
    dataset = Dataset::Open(runtime_, stores_, Uri(fmt::format("set/{}", name)), usual);
    EXPECT_FALSE((*dataset)->built()) << "the index knows its columns";
    EXPECT_EQ(Read(**dataset), samples);
    OpenOptions all = options_;
    all.raw.all = true;
    dataset = Dataset::Open(runtime_, stores_, Uri(fmt::format("set/{}", name)), all);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->index().samples_without_crc(), 0u);
    EXPECT_EQ(Read(**dataset), samples);
  }
}

TEST_P(ManifestSetTest, ObjectsOfOneSampleAreReusedTogether) {
  Put("set/m/1.png", "mask 1");
  Put("set/list.csv", "img,mask\na/1.jpg,m/1.png\n");
  options_.columns.path = "image=img,mask=mask";
  options_.raw.all = true;
  ASSERT_TRUE(Open("list.csv").ok());
  Put("set/list.csv", "img,mask\na/1.jpg,m/1.png\na/2.jpg,b/3.png\n");
  options_.raw.all = false;
  options_.rebuild = true;
  EXPECT_EQ((*Open("list.csv"))->index().samples_without_crc(), 1u);
  options_.raw.all = true;
  auto dataset = Open("list.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->built()->reused_objects, 1u);
  Put("set/m/1.png", "changed");
  dataset = Open("list.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->built()->reused_objects, 1u) << "that of a/2";
  EXPECT_THAT(Read(**dataset), ElementsAre("a/1: cls=0 image=set/a/1.jpg mask=changed of a",
                                           "a/2: cls=0 image=set/a/2.jpg mask=set/b/3.png of a"));
}

TEST_P(ManifestSetTest, WhatIsWrongWithColumnsOfPathsIsNamed) {
  Put("set/list.csv", "img,mask\na/1.jpg,b/3.png\na/2.jpg,\n");
  Put("set/away.csv", "img,mask\na/1.jpg,../3.png\n");
  Put("set/gone.csv", "img,mask\na/1.jpg,b/4.png\n");
  for (const auto& [name, columns, words] : std::vector<std::array<std::string, 3>>{
           {"list.csv", "image=img,mask=mask", "line 3: there is no path in 'mask', for 'mask'"},
           {"list.csv", "image=img,mask=masks", "line 2: there is no path in 'masks', for 'mask'"},
           {"list.csv", "image=imgs,mask=mask", "there is no 'imgs' among img, mask"},
           {"list.csv", "image=img,image=mask", "'image=mask' is there twice"},
           {"list.csv", "image=img,cls=mask", "'cls=mask' is the field of the class"},
           {"list.csv", "image=img,=mask", "'=mask' lacks a name"},
           {"away.csv", "image=img,mask=mask", "line 2: mask: '../3.png' is no path of an object below"},
           {"gone.csv", "image=img,mask=mask", "gone.csv: line 2"}}) {
    options_.columns.path = columns;
    EXPECT_THAT(Open(name).status().ToString(), HasSubstr(words)) << columns;
  }
}

TEST_P(ManifestSetTest, CsvWithTextLabels) {
  Put("set/train.csv", "file,label,width,note\nb/3.png,dog,30,\na/1.jpg,cat,10,hello\n./a/2.jpg,,20,\n");
  const auto dataset = Open("train.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Read(**dataset),
              ElementsAre("a/1: cls=0 jpg=set/a/1.jpg note=hello width=10 of cat", "a/2: jpg=set/a/2.jpg width=20",
                          "b/3: cls=1 png=set/b/3.png width=30 of dog"));
  EXPECT_THAT((*dataset)->index().class_names(), ElementsAre("cat", "dog"));
  EXPECT_THAT((*dataset)->index_uri(), HasSubstr("set/.millrace/train.csv.index"));
  EXPECT_TRUE((*dataset)->built());
  EXPECT_FALSE((*Open("train.csv"))->built()) << "it is there";
}

TEST_P(ManifestSetTest, NumbersAsLabelsStayNumbers) {
  const std::string uri = Uri("set");
  Put("set/train.jsonl", fmt::format("{{\"source-ref\": \"{}/b/3.png\", \"cls\": 10}}\n", uri) +
                             "{\"path\": \"a/1.jpg\", \"cls\": 9}\n{\"path\": \"a/2.jpg\", \"cls\": 10}\n");
  const auto dataset = Open("train.jsonl");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Read(**dataset), ElementsAre("a/1: cls=9 jpg=set/a/1.jpg of 9", "a/2: cls=10 jpg=set/a/2.jpg of 10",
                                           "b/3: cls=10 png=set/b/3.png of 10"));
  EXPECT_TRUE((*dataset)->index().class_names().empty());
  EXPECT_EQ((*dataset)->index().class_counts()[0].name, "9") << "by number";
}

TEST_P(ManifestSetTest, NegativeNumbersAreNumbersButNoClasses) {
  Put("set/train.csv", "path, label\na/1.jpg, -1\na/2.jpg, 10\nb/3.png, 2\n");
  const auto dataset = Open("train.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Read(**dataset), ElementsAre("a/1: cls=-1 jpg=set/a/1.jpg", "a/2: cls=10 jpg=set/a/2.jpg of 10",
                                           "b/3: cls=2 png=set/b/3.png of 2"));
}

TEST_P(ManifestSetTest, TheFingerprintIsOfTheLabels) {
  options_.rebuild = true;
  const auto fingerprint = [this](std::string_view text) {
    Put("set/train.csv", text);
    const auto dataset = Open("train.csv");
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? (*dataset)->index().fingerprint() : 0;
  };
  const uint64_t usual = fingerprint("path,label\na/1.jpg,alpha\na/2.jpg,beta\n");
  EXPECT_NE(fingerprint("path,label\na/1.jpg,beta\na/2.jpg,alpha\n"), usual);
  EXPECT_NE(fingerprint("path,label\na/1.jpg,alpha\na/2.jpg,\n"), usual);
  EXPECT_EQ(fingerprint("label,path\nbeta,a/2.jpg\nalpha,a/1.jpg\n"), usual);
  EXPECT_EQ(fingerprint("path,label\na/1.jpg,a\na/2.jpg,a\n"), fingerprint("path\na/1.jpg\na/2.jpg\n"))
      << "they are the folders";
}

TEST_P(ManifestSetTest, AReplacedManifestIsNotTakenForTheOneThatWasFound) {
  Put("set/train.csv", "path\na/1.jpg\n");
  const std::string uri = base_ + "/set/train.csv";
  const auto place = FindManifest(stores_, uri);
  ASSERT_TRUE(place.ok() && *place) << place.status();
  Put("set/train.csv", "path\na/2.jpg\n");
  EXPECT_EQ(ManifestSamples::Read(**place, {}, runtime_.memory()).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_P(ManifestSetTest, ReadingStopsWhenAsked) {
  Put("set/train.csv", "path\na/1.jpg\n");
  const auto place = FindManifest(stores_, base_ + "/set/train.csv");
  ASSERT_TRUE(place.ok() && *place) << place.status();
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(ManifestSamples::Read(**place, {}, runtime_.memory(), stop.get_token()).status().code(),
            absl::StatusCode::kCancelled);
}

TEST_P(ManifestSetTest, MemoryIsOfTheBudget) {
  std::string text = "path,a,b\n";
  for (int i = 0; i < 10'000; ++i) text += fmt::format("a/{}.jpg,1,2\n", i);
  Put("set/train.csv", text);
  const auto place = FindManifest(stores_, base_ + "/set/train.csv");
  ASSERT_TRUE(place.ok() && *place) << place.status();
  MemoryBudget memory(2 << 20);
  {
    const auto samples = ManifestSamples::Read(**place, {}, memory);
    ASSERT_TRUE(samples.ok()) << samples.status();
    EXPECT_EQ((*samples)->size(), 10'000u);
    EXPECT_GT(memory.used(), text.size());
    EXPECT_LT(memory.used(), 6 * text.size());
  }
  EXPECT_EQ(memory.used(), 0u);
  MemoryBudget small(text.size() + 1000);
  EXPECT_EQ(ManifestSamples::Read(**place, {}, small).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_P(ManifestSetTest, SageMakerManifestHasFoldersAsClasses) {
  const std::string uri = Uri("set/");
  Put("set/x.manifest", fmt::format("[{{\"prefix\": \"{}\"}}, \"b/3.png\", \"a/2.jpg\"]", uri));
  const auto dataset = Open("x.manifest");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Read(**dataset), ElementsAre("a/2: cls=0 jpg=set/a/2.jpg of a", "b/3: cls=1 png=set/b/3.png of b"));
}

TEST_P(ManifestSetTest, AChangedManifestIsNoticed) {
  Put("set/train.csv", "path\na/1.jpg\n");
  ASSERT_TRUE(Open("train.csv").ok());
  EXPECT_THAT(ErrorOf("train.csv", "path\na/1.jpg\na/2.jpg\n"), HasSubstr("the manifest has changed"));
  options_.rebuild = true;
  EXPECT_EQ((*Open("train.csv"))->index().size(), 2u);
  EXPECT_EQ((*Open("train.csv"))->built()->reused_objects, 2u);
  options_.rebuild = false;
  EXPECT_EQ((*Open("train.csv"))->index().size(), 2u);
  EXPECT_TRUE(Dataset::Open(runtime_, stores_, base_ + "/set/a", options_).ok()) << "folders are still folders";
}

TEST_P(ManifestSetTest, ObjectsAreReusedAndWhatTheManifestSaysIsNew) {
  Put("set/train.csv", "path,label,n\na/1.jpg,cat,1\na/2.jpg,dog,2\n");
  ASSERT_TRUE(Open("train.csv").ok());
  Put("set/train.csv", "path,label,m\na/1.jpg,eel,x\na/2.jpg,ant,y\nb/3.png,cat,z\n");
  options_.rebuild = true;
  const auto updated = Open("train.csv");
  ASSERT_TRUE(updated.ok()) << updated.status();
  EXPECT_EQ((*updated)->built()->reused_objects, 2u);
  const std::vector<std::string> expected = {"a/1: cls=2 jpg=set/a/1.jpg m=x of eel",
                                             "a/2: cls=0 jpg=set/a/2.jpg m=y of ant",
                                             "b/3: cls=1 m=z png=set/b/3.png of cat"};
  EXPECT_EQ(Read(**updated), expected);
  options_.reuse = false;
  const auto full = Open("train.csv");
  ASSERT_TRUE(full.ok()) << full.status();
  EXPECT_EQ((*full)->built()->reused_objects, 0u);
  EXPECT_EQ(Read(**full), expected);
  EXPECT_EQ((*full)->index().fingerprint(), (*updated)->index().fingerprint());
}

TEST_P(ManifestSetTest, WhatIsWrongIsNamedWithItsLine) {
  EXPECT_THAT(ErrorOf("1.csv", "path\na/1.jpg\n./a/1.jpg\n"),
              HasSubstr("1.csv: line 2 and line 3 name the same object"));
  EXPECT_THAT(ErrorOf("2.csv", "path\na/1.jpg\na/none.jpg\n"), HasSubstr("2.csv: line 3: "));
  EXPECT_THAT(ErrorOf("3.csv", "path\n../x.jpg\n"), HasSubstr("3.csv: line 2: '../x.jpg' is no path"));
  EXPECT_THAT(ErrorOf("4.csv", "path\ns3://other/x.jpg\n"),
              HasSubstr("4.csv: line 2: 's3://other/x.jpg' is not below"));
  EXPECT_THAT(ErrorOf("5.csv", "path\nREADME\n"), HasSubstr("5.csv: line 2: 'README' is no name of a sample"));
  EXPECT_THAT(ErrorOf("6.csv", "path\n6.csv\n"), HasSubstr("6.csv: line 2 names the manifest itself"));
  EXPECT_THAT(ErrorOf("7.csv", "path\n"), HasSubstr("7.csv: the manifest lists no objects"));
  EXPECT_THAT(ErrorOf("8.csv", "path,jpg\na/1.jpg,x\n"), HasSubstr("the field 'jpg' twice"));
  EXPECT_THAT(ErrorOf("10.csv", "path\n.millrace/9.csv.index\n"),
              HasSubstr("10.csv: line 2: '.millrace/9.csv.index' is hidden"));
  EXPECT_THAT(ErrorOf("11.csv", "path\na/.hid/x.txt\n"), HasSubstr("11.csv: line 2: 'a/.hid/x.txt' is hidden"));
  EXPECT_THAT(ErrorOf("12.csv", "path,label\na/1.jpg," + std::string(5000, 'x') + "\n"),
              HasSubstr("12.csv: line 2: a label of 5000 bytes (at most 4096 are allowed); rename its column"));
  EXPECT_THAT(ErrorOf("13.json", "[{\"prefix\": \"./\"}, \"a/1.jpg\", \"a/none.jpg\"]"),
              HasSubstr("13.json: entry 2: "));
  EXPECT_THAT(ErrorOf("14.json", "[{\"prefix\": \"./\"}, \"a/1.jpg\", \"a/1.jpg\"]"),
              HasSubstr("14.json: entry 1 and entry 2 name the same object"));
  EXPECT_THAT(ErrorOf("9.jsonl", "{}\n"), HasSubstr("9.jsonl: line 1: none of its members"));
}

TEST_P(ManifestSetTest, TokenFilesAreRefused) {
  Put("set/t/a.bin", "xyz");
  Put("set/t/a.idx", testing::MegatronIdx(1, 1, {1, 2}, {0, 2}));
  const std::string both = "file\nt/a.bin\nt/a.idx\n";
  EXPECT_THAT(ErrorOf("t.csv", both), HasSubstr("t/a.idx' and the .bin beside it are token files"));
  Put("set/t/a.idx", "any bytes");
  const auto dataset = Open("t.csv");
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->index().kind(), DataKind::kRawObjects);
  Put("set/u.csv", both);
  options_.tokens = TokenArrays{.length = 2};
  EXPECT_THAT(Open("u.csv").status().ToString(),
              HasSubstr("set/u.csv: what a manifest lists are samples, which --tok"));
}

}  // namespace
}  // namespace millrace
