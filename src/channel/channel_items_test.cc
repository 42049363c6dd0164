#include "channel/channel_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "net/runtime.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ChannelItemsTest : public ::testing::Test {
 protected:
  void Put(const std::string& key, const std::string& text, const std::string& store = "data") {
    const absl::StatusOr<Location> to = stores_.Open("mem://" + store);
    ASSERT_TRUE(to.ok() && PutBlocking(*to->store, key, AsBytes(text)).ok());
  }
  absl::StatusOr<ChannelItems> Find(const std::string& channel) {
    const absl::StatusOr<Channel> parsed = ParseChannel("train=" + channel);
    if (!parsed.ok()) return parsed.status();
    return FindChannelItems(stores_, *parsed);
  }
  std::vector<std::string> Texts(const std::string& channel) {
    const absl::StatusOr<ChannelItems> items = Find(channel);
    EXPECT_TRUE(items.ok()) << items.status();
    std::vector<std::string> texts;
    if (!items.ok()) return texts;
    for (const ChannelPart& part : items->parts)
      texts.push_back(part.is_object ? part.text + "#" + std::to_string(part.size) : part.text);
    return texts;
  }

  Runtime runtime_{{.cpu_threads = 1}};
  Stores stores_{runtime_};
};

TEST_F(ChannelItemsTest, APrefixIsItsObjectsInOrder) {
  for (const char* key : {"p/b", "p/a/x", "p/", "p/.millrace/index", "p/a/.millrace/index", "p/d/", "pq", "p/c"})
    Put(key, key[1] == 0 ? "" : "12");
  Put("p/", "");
  Put("p/d/", "");
  EXPECT_THAT(Texts("mem://data/p,mode=Pipe"), ElementsAre("p/a/x#2", "p/b#2", "p/c#2"));
  EXPECT_THAT(Texts("mem://data/p/b,mode=Pipe"), ElementsAre("p/b#2"));
  const absl::StatusOr<ChannelItems> none = Find("mem://data/q,mode=Pipe");
  EXPECT_TRUE(absl::IsNotFound(none.status()));
}

TEST_F(ChannelItemsTest, AManifestIsItsEntriesInTheirOrder) {
  Put("p/b", "1");
  Put("p/a", "22");
  Put("m.json", R"([{"prefix": "mem://data/p/"}, "b", "a", "b"])");
  EXPECT_THAT(Texts("mem://data/m.json,mode=Pipe,type=ManifestFile"), ElementsAre("p/b#1", "p/a#2", "p/b#1"));
  Put("m.json", R"([{"prefix": "mem://data/p/"}, "b", "missing"])");
  const absl::Status missing = Find("mem://data/m.json,mode=Pipe,type=ManifestFile").status();
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(missing.message(), HasSubstr("mem://data/p/missing"));
  for (const char* text : {"", "[]", "{}", R"(["a"])", R"([{"prefix": "mem://data/p/"}, 3])"}) {
    Put("m.json", text);
    const absl::Status status = Find("mem://data/m.json,mode=Pipe,type=ManifestFile").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << status;
    EXPECT_THAT(status.message(), HasSubstr("m.json"));
  }
}

TEST_F(ChannelItemsTest, AnAugmentedManifestIsItsAttributes) {
  Put("x.jpg", "123");
  Put("y.jpg", "1");
  Put("m", R"({"source-ref": "mem://data/x.jpg", "label": 1, "m": {"b": 1, "a": [0.5, null]}, "t": "some \"text\""}

{"source-ref": "mem://data/y.jpg", "label": 0, "m": {}, "t": ""})");
  EXPECT_THAT(Texts("mem://data/m,mode=Pipe,type=AugmentedManifestFile,attributes=label+source-ref"),
              ElementsAre("1", "x.jpg#3", "0", "y.jpg#1"));
  EXPECT_THAT(Texts("mem://data/m,mode=Pipe,type=AugmentedManifestFile,attributes=m+t"),
              ElementsAre(R"({"b":1,"a":[0.5,null]})", "some \"text\"", "{}", ""));
  Put("z", "1", "other");
  Put("m", "{\"source-ref\": \"mem://data/x.jpg\"}\n{\"source-ref\": \"mem://other/z\"}");
  EXPECT_THAT(Find("mem://data/m,mode=Pipe,type=AugmentedManifestFile,attributes=source-ref").status().message(),
              HasSubstr("a channel reads one bucket"));
}

TEST_F(ChannelItemsTest, WrongLinesAreNamed) {
  const std::vector<std::string> attributes{"a-ref", "b"};
  const std::string good = "{\"a-ref\": \"s3://b/k\", \"b\": 2}\n";
  EXPECT_TRUE(ParseAugmentedManifest(good + good, attributes).ok());
  for (const char* line : {"[]", "{", "x", "{\"a-ref\": \"s3://b/k\"}", "{\"a-ref\": 1, \"b\": 2}",
                           "{\"a-ref\": \"s3://b\", \"b\": 2}", "{\"a-ref\": \"k\\\"", "{\"b\": \"\xff\"}"}) {
    const absl::Status status = ParseAugmentedManifest(good + line, attributes).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << line;
    EXPECT_THAT(status.message(), HasSubstr("line 2")) << line;
  }
}

}  // namespace
}  // namespace millrace
