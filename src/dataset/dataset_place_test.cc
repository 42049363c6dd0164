#include "dataset/dataset_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataset/index_file.h"
#include "dataset/testing/data_place.h"
#include "shard/tar_writer.h"
#include "shard/testing/token_builder.h"
#include "store/blocking.h"
#include "store/testing/forwarding_store.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string TarOf(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out;
  for (const auto& [name, data] : members) {
    EXPECT_TRUE(AppendTarHeader(out, name, data.size()).ok());
    out += data;
    AppendTarPadding(out, data.size());
  }
  AppendTarEnd(out);
  return out;
}

class SingleObjectTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  SingleObjectTest() : DataPlace(GetParam()) {}

  std::vector<std::string> OpenAndRead(std::string_view name) {
    const auto dataset = OpenAt(name);
    return dataset.ok() ? Read(**dataset) : std::vector<std::string>{dataset.status().ToString()};
  }
  void ExpectError(std::string_view name, absl::StatusCode code, std::initializer_list<std::string> texts) {
    const absl::Status status = OpenAt(name).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& text : texts) EXPECT_THAT(status.ToString(), HasSubstr(text));
  }
  // Writes tokens of one byte each, in sequences of these lengths.
  void PutPair(const std::string& stem, const std::vector<int32_t>& lengths, std::string_view tokens) {
    PutAt(stem + ".bin", tokens);
    PutAt(stem + ".idx", testing::MegatronIdx(1, 1, lengths, {0, static_cast<int64_t>(lengths.size())}));
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, SingleObjectTest, ::testing::Values("mem", "file"),
                         [](const auto& i) { return i.param; });

TEST_P(SingleObjectTest, IsADataSetOfItsOwnBesideThatOfItsFolder) {
  PutAt("set/a.tar", TarOf({{"1.jpg", "one"}}));
  PutAt("set/a.tar.more.tar", TarOf({{"2.jpg", "two"}}));
  PutAt("set/b.jpg", "raw");
  EXPECT_THAT(OpenAndRead("set/a.tar"), ElementsAre("1: jpg=one"));
  EXPECT_THAT(OpenAndRead("set/a.tar.more.tar"), ElementsAre("2: jpg=two"));
  EXPECT_THAT(OpenAndRead("set/b.jpg"), ElementsAre("b: jpg=raw"));
  EXPECT_TRUE(ExistsAt("set/.millrace/a.tar.index"));
  EXPECT_FALSE(ExistsAt("set/.millrace/index"));
  EXPECT_THAT(OpenAndRead("set"), ElementsAre("1: jpg=one", "2: jpg=two"));
  EXPECT_THAT(OpenAndRead("set/a.tar"), ElementsAre("1: jpg=one"));
  EXPECT_THAT((*OpenAt("set/a.tar"))->index_uri(), HasSubstr("set/.millrace/a.tar.index"));
  EXPECT_FALSE((*OpenAt("set/a.tar"))->built()) << "it is there";
}

TEST_P(SingleObjectTest, HasTheIndexOfAFolderWithThatObject) {
  PutAt("alone/a.tar", TarOf({{"1.jpg", "one"}, {"2.jpg", "two"}}));
  ASSERT_THAT(OpenAndRead("alone"), ElementsAre("1: jpg=one", "2: jpg=two"));
  ASSERT_THAT(OpenAndRead("alone/a.tar"), ElementsAre("1: jpg=one", "2: jpg=two"));
  const Location place = *stores_.Open(Uri("alone"));
  EXPECT_EQ(*ReadAll(*place.store, place.Key(".millrace/index"), 1 << 20),
            *ReadAll(*place.store, place.Key(".millrace/a.tar.index"), 1 << 20));
}

TEST_P(SingleObjectTest, IsHeldAgainstItsIndex) {
  PutAt("set/a.tar", TarOf({{"1.jpg", "x"}}));
  ASSERT_TRUE(OpenAt("set/a.tar").ok());
  PutAt("set/b.tar", TarOf({{"1.jpg", "x"}}));
  EXPECT_TRUE(OpenAt("set/a.tar").ok());
  PutAt("set/a.tar", TarOf({{"1.jpg", "y"}}));
  ExpectError("set/a.tar", absl::StatusCode::kFailedPrecondition,
              {"set/a.tar: it was replaced", "millrace index ", "/set/a.tar"});
  options_.rebuild = true;
  EXPECT_THAT(OpenAndRead("set/a.tar"), ElementsAre("1: jpg=y"));
  options_.rebuild = false;
  EXPECT_THAT(OpenAndRead("set/a.tar"), ElementsAre("1: jpg=y"));
  DeleteAt("set/a.tar");
  ExpectError("set/a.tar", absl::StatusCode::kNotFound, {"set/a.tar"});
}

TEST_P(SingleObjectTest, MayLieAtTheTopAndInOddFolders) {
  PutAt("1.jpg", "top");
  PutAt("v1.0/b.tar/1.jpg", "deep");
  EXPECT_THAT(OpenAndRead("1.jpg"), ElementsAre("1: jpg=top"));
  EXPECT_THAT(OpenAndRead("v1.0/b.tar"), ElementsAre("1: jpg=deep")) << "a folder may be called like a shard";
  EXPECT_THAT(OpenAndRead("v1.0"), ElementsAre("b.tar/1: cls=0 jpg=deep"));
}

TEST_P(SingleObjectTest, BothNamesOfAPairAreThatPair) {
  PutPair("set/a", {2, 1}, "xyz");
  PutPair("set/b", {1}, "p");
  EXPECT_THAT(OpenAndRead("set/a.bin"), ElementsAre("a.bin/00000000: tokens=xy", "a.bin/00000001: tokens=z"));
  EXPECT_TRUE(ExistsAt("set/.millrace/a.bin.index"));
  EXPECT_THAT(OpenAndRead("set/a.idx"), ElementsAre("a.bin/00000000: tokens=xy", "a.bin/00000001: tokens=z"));
  EXPECT_FALSE((*OpenAt("set/a.idx"))->built()) << "it is that of the .bin";
  DeleteAt("set/b.bin");
  ExpectError("set/b.idx", absl::StatusCode::kInvalidArgument, {"set/b.idx", "no '", "set/b.bin' beside it"});
  DeleteAt("set/a.idx");
  ExpectError("set/a.bin", absl::StatusCode::kFailedPrecondition, {"set/a.idx: it is gone"});
}

TEST_P(SingleObjectTest, AnArrayIsCutAsTheUserSays) {
  PutAt("set/a.bin", "wxyz");
  PutAt("set/a.idx", "of another kind");
  EXPECT_THAT(OpenAndRead("set/a.bin"), ElementsAre("a: bin=wxyz"));
  options_.rebuild = true;
  options_.tokens = *ParseTokenArrays("2:uint8");
  EXPECT_THAT(OpenAndRead("set/a.bin"), ElementsAre("a.bin/00000000: tokens=wx", "a.bin/00000001: tokens=yz"));
  PutPair("set/p", {1}, "p");
  ExpectError("set/p.bin", absl::StatusCode::kInvalidArgument, {"set/p.idx", "without --tokens"});
}

TEST_P(SingleObjectTest, WhatIsNoDataSetIsRefusedByName) {
  PutAt("set/a.tar.gz", "compressed");
  ExpectError("set/a.tar.gz", absl::StatusCode::kInvalidArgument,
              {"set/a.tar.gz: a compressed shard", "millrace pack ", "set/a.tar.gz DST"});
  PutAt("set/empty.tar", TarOf({}));
  ExpectError("set/empty.tar", absl::StatusCode::kNotFound, {"no samples under", "set/empty.tar"});
  PutAt("set/README", "text");
  ExpectError("set/README", absl::StatusCode::kNotFound,
              {GetParam() == "file" ? "is a file; a folder is needed" : "does not tell what it is"});
  ExpectError("set/missing.tar", absl::StatusCode::kNotFound, {"set/missing.tar"});
}

TEST_P(SingleObjectTest, WildcardsAndBracesSelectObjects) {
  for (const std::string name : {"a-0", "a-1", "a-2", "b-0"})
    PutAt("set/" + name + ".tar", TarOf({{name + ".txt", "x"}}));
  PutAt("set/a-9.txt", "no shard");
  const auto keys = [&](std::string_view name) {
    std::vector<std::string> found = OpenAndRead(name);
    for (std::string& text : found) text = text.substr(0, text.find(": txt=x"));
    return found;
  };
  EXPECT_THAT(keys("set/a-*.tar"), ElementsAre("a-0", "a-1", "a-2"));
  EXPECT_THAT(keys("set/{a-{1..2},b-0}.tar"), ElementsAre("a-1", "a-2", "b-0"));
  EXPECT_THAT(keys("s?t/[b]-*.tar"), ElementsAre("b-0"));
  EXPECT_TRUE(ExistsAt("set/.millrace/index") == false);
  // The index of a selection notices objects that are added and removed.
  PutAt("set/a-3.tar", TarOf({{"a-3.txt", "x"}}));
  ExpectError("set/a-*.tar", absl::StatusCode::kFailedPrecondition, {"it was added", "millrace index '"});
  EXPECT_THAT(keys("set/{a-{1..2},b-0}.tar"), ElementsAre("a-1", "a-2", "b-0"));
  ExpectError("set/*.tar.gz", absl::StatusCode::kNotFound, {"no samples under", "*.tar.gz"});
  ExpectError("set/{a-0,a-7,a-8}.tar", absl::StatusCode::kNotFound, {"there is nothing at", "a-7.tar (nor at 1 more)"});
}

TEST_P(SingleObjectTest, WhatIsThereByItsVeryNameIsMeant) {
  PutAt("se[t]/a.tar", TarOf({{"1.txt", "in brackets"}}));
  PutAt("set/a*.tar", TarOf({{"2.txt", "a star"}}));
  PutAt("set/ab.tar", TarOf({{"3.txt", "another"}}));
  EXPECT_THAT(OpenAndRead("se[t]"), ElementsAre("1: txt=in brackets"));
  EXPECT_THAT(OpenAndRead("set/a*.tar"), ElementsAre("2: txt=a star"));
}

TEST_P(SingleObjectTest, SelectedFoldersKeepTheirClasses) {
  for (const std::string folder : {"cat", "cow", "dog"}) PutAt("set/" + folder + "/1.jpg", folder);
  EXPECT_THAT(OpenAndRead("set/{cat,dog}"), ElementsAre("cat/1: cls=0 jpg=cat", "dog/1: cls=1 jpg=dog"));
  EXPECT_THAT(OpenAndRead("set/c*/"), ElementsAre("cat/1: cls=0 jpg=cat", "cow/1: cls=1 jpg=cow"));
  const auto dataset = OpenAt("set/{cat,dog}");
  ASSERT_TRUE(dataset.ok());
  EXPECT_THAT((*dataset)->index().class_names(), ElementsAre("cat", "dog"));
}

// Memory can always be written to.
class SingleFileTest : public SingleObjectTest {};
INSTANTIATE_TEST_SUITE_P(Stores, SingleFileTest, ::testing::Values("file"),
                         [](const auto& test) { return test.param; });

TEST_P(SingleFileTest, KeepsItsIndexInTheCacheFolderIfItMust) {
  PutAt("set/a.tar", TarOf({{"1.jpg", "x"}}));
  PutAt("set/b.tar", TarOf({{"1.jpg", "y"}}));
  PutAt("set/.millrace", "in the way");
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(OpenAndRead("set/a.tar"), ElementsAre("1: jpg=x"));
    EXPECT_THAT(OpenAndRead("set/b.tar"), ElementsAre("1: jpg=y"));
    EXPECT_THAT(OpenAndRead("set"), ElementsAre("1: jpg=x", "1: jpg=y"));
  }
}

// A store that may be read, but not listed.
class UnlistedStore final : public ForwardingStore {
 public:
  ~UnlistedStore() override { Close(); }
  void List(ListOptions, ListCallback done) override { done(absl::PermissionDeniedError("s3:ListBucket is missing")); }
};

TEST(PlaceLister, AsksForEachNameWhereItMayNotList) {
  UnlistedStore store;
  std::string all = "s3://b/set/{";
  for (int i = 0; i < 150; ++i) {
    const std::string name = std::to_string(1000 + i) + ".tar";
    ASSERT_TRUE(PutBlocking(store, "set/" + name, AsBytes("x")).ok());
    all += name + (i < 149 ? "," : "}");
  }
  const auto list = [&store](std::string_view uri) -> absl::StatusOr<std::vector<std::string>> {
    DatasetPlace place(Location{.store = &store, .prefix = "set/"});
    ASSIGN_OR_RETURN(std::optional<ObjectSelection> selection, ObjectSelection::Parse(uri));
    place.selection = std::make_shared<const ObjectSelection>(*std::move(selection));
    PlaceLister lister(place);
    std::vector<std::string> keys;
    for (;;) {
      ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, lister.Next());
      if (objects.empty()) return keys;
      for (const ObjectInfo& object : objects) keys.push_back(object.key);
    }
  };
  const auto some = list("s3://b/set/{1149,1000}.tar");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_THAT(*some, ElementsAre("set/1000.tar", "set/1149.tar"));
  const auto whole = list(all);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->size(), 150u);
  EXPECT_TRUE(std::is_sorted(whole->begin(), whole->end()));
  const absl::Status absent = list("s3://b/set/{1000,2000,3000}.tar").status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound) << absent;
  EXPECT_THAT(absent.ToString(), HasSubstr("2000.tar (nor at 1 more)"));
  EXPECT_EQ(list("s3://b/set/1*.tar").status().code(), absl::StatusCode::kPermissionDenied);
}

TEST(BeginsAsMegatron, LooksAtTheFirstBytes) {
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 1 << 20});
  Stores stores(runtime);
  ObjectStore& store = *stores.Open("mem://m")->store;
  const auto begins = [&](std::string_view bytes) {
    EXPECT_TRUE(PutBlocking(store, "k", AsBytes(bytes)).ok());
    return *BeginsAsMegatron(store, *HeadBlocking(store, "k"), {});
  };
  EXPECT_TRUE(begins(testing::MegatronIdx(1, 1, {1}, {0, 1})));
  EXPECT_FALSE(begins(std::string(40, 'x')));
  EXPECT_FALSE(begins("MMIDIDX"));
}

}  // namespace
}  // namespace millrace
