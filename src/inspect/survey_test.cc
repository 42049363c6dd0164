#include "inspect/survey.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "dataset/testing/index_model.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using namespace millrace::testing;  // NOLINT: index_model.h

// Fills a shard sample by sample.
class Shard {
 public:
  explicit Shard(const std::string& key) { object_.info.key = key; }
  void Add(const std::string& key, const std::vector<std::pair<std::string, uint64_t>>& fields) {
    ModelSample& sample = object_.samples.emplace_back();
    sample.key = key;
    for (const auto& [name, length] : fields) {
      sample.fields.push_back({.name = name, .offset = end_ + 512, .length = length, .encoding = ""});
      end_ = (end_ + 512 + length + 511) / 512 * 512;
    }
  }
  void CutShort() { object_.info.incomplete = true; }
  ModelObject Finish() {
    object_.info.size = end_ + 1024;
    return object_;
  }

 private:
  ModelObject object_;
  uint64_t end_ = 0;
};

std::unique_ptr<Index> IndexOfObjects(std::vector<ModelObject> objects) {
  absl::StatusOr<std::string> bytes = WriteIndex({.kind = DataKind::kTar, .objects = std::move(objects)});
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  auto index = Index::FromBytes(*std::move(bytes));
  EXPECT_TRUE(index.ok()) << index.status();
  return *std::move(index);
}

Survey SurveyOf(const Index& index) {
  absl::StatusOr<Survey> survey = MakeSurvey(index, {});
  EXPECT_TRUE(survey.ok()) << survey.status();
  return *std::move(survey);
}

std::vector<std::string> Keys(const Finding& finding) {
  std::vector<std::string> keys;
  for (const SamplePlace& place : finding.first) keys.push_back(place.key);
  return keys;
}

TEST(Survey, NothingToSayOfAUsualDataSet) {
  Rng rng(HashKey(3, {1}));
  absl::StatusOr<std::string> bytes = WriteIndex(UsualModel(5000, rng));
  const auto index = *Index::FromBytes(*std::move(bytes));
  const Survey survey = SurveyOf(*index);
  EXPECT_EQ(survey.fields.at("jpg").samples, 5000u);
  EXPECT_EQ(survey.fields.at("cls").bytes, 15'000u);
  EXPECT_EQ(survey.empty.count + survey.huge.count, 0u);
  EXPECT_THAT(survey.lacking, IsEmpty());
  EXPECT_TRUE(survey.keys_ascend);
}

TEST(Survey, FindsWhatIsEmpty) {
  Shard shard("a.tar");
  for (int i = 0; i < 20; ++i) {
    const uint64_t all = i % 3 == 0 ? 0 : 100;
    shard.Add(fmt::format("{:02}", i), {{"jpg", all}, {"txt", i == 4 || i == 7 ? 0 : all}});
  }
  const auto index = IndexOfObjects({shard.Finish()});
  const Survey survey = SurveyOf(*index);
  EXPECT_EQ(survey.empty.count, 7u);
  EXPECT_THAT(Keys(survey.empty), ElementsAre("00", "03", "06", "09", "12")) << "the first five";
  EXPECT_EQ(survey.fields.at("jpg").empty.count, 0u) << "where all is empty no field is named";
  EXPECT_THAT(Keys(survey.fields.at("txt").empty), ElementsAre("04", "07"));
}

TEST(Survey, FindsWhatNearlyAllOthersHave) {
  Shard a("a.tar"), b("b.tar");
  for (int i = 0; i < 100; ++i) {
    std::vector<std::pair<std::string, uint64_t>> fields = {{"jpg", 10}, {"cls", 1}};
    if (i == 7) fields[0].first = "png";  // stands in
    if (i == 8) fields[0].first = "left.png";
    if (i == 60) fields.pop_back();
    if (i % 10 == 0) fields.push_back({"note", 3});  // a field of few
    (i < 50 ? a : b).Add(fmt::format("{:02}", i), fields);
  }
  const auto index = IndexOfObjects({a.Finish(), b.Finish()});
  const Survey survey = SurveyOf(*index);
  ASSERT_THAT(survey.lacking, SizeIs(2));
  EXPECT_THAT(survey.lacking[0].names, ElementsAre("jpg", "png"));
  EXPECT_THAT(Keys(survey.lacking[0].samples), ElementsAre("08"));
  EXPECT_THAT(survey.lacking[1].names, ElementsAre("cls"));
  ASSERT_EQ(survey.lacking[1].samples.count, 1u);
  EXPECT_EQ(survey.lacking[1].samples.first[0].key, "60");
  EXPECT_EQ(survey.lacking[1].samples.first[0].object, 1u);
  EXPECT_EQ(survey.lacking[1].samples.first[0].number, 60u);
}

TEST(Survey, FindsWhatIsHuge) {
  for (const uint64_t usual : {uint64_t{1000}, uint64_t{1} << 20}) {
    Shard shard("a.tar");
    for (int i = 0; i < 50; ++i) {
      const uint64_t bytes = i == 20 ? 70 << 20 : i == 30 ? 105 << 20 : usual;
      shard.Add(fmt::format("{:02}", i), {{"jpg", bytes}});
    }
    const auto index = IndexOfObjects({shard.Finish()});
    const Survey survey = SurveyOf(*index);
    if (usual == 1000) {
      EXPECT_EQ(survey.huge_above, kHugeBytes);
      EXPECT_THAT(Keys(survey.huge), ElementsAre("20", "30"));
    } else {
      EXPECT_NEAR(static_cast<double>(survey.huge_above), 100.0 * (1 << 20), 1 << 20);
      EXPECT_THAT(Keys(survey.huge), ElementsAre("30"));
    }
  }
}

TEST(Survey, KeysAscendOnlyWhereEachIsLarger) {
  for (const auto& [second, ascend] :
       std::vector<std::pair<std::string, bool>>{{"c", true}, {"b", false}, {"a", false}}) {
    Shard a("a.tar"), b("b.tar");
    a.Add("b", {{"jpg", 1}});
    b.Add(second, {{"jpg", 1}});
    const auto index = IndexOfObjects({a.Finish(), b.Finish()});
    EXPECT_EQ(SurveyOf(*index).keys_ascend, ascend) << second;
  }
}

TEST(Survey, ListsShardsThatAreIncomplete) {
  Shard a("a.tar"), b("b.tar"), c("c.tar");
  for (Shard* shard : {&a, &b, &c}) shard->Add("k", {{"jpg", 1}});
  for (Shard* shard : {&a, &c}) shard->CutShort();
  const auto index = IndexOfObjects({a.Finish(), b.Finish(), c.Finish()});
  EXPECT_THAT(SurveyOf(*index).incomplete, ElementsAre("a.tar", "c.tar"));
}

TEST(Survey, StopsWhenAsked) {
  Shard shard("a.tar");
  shard.Add("a", {{"jpg", 1}});
  const auto index = IndexOfObjects({shard.Finish()});
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(MakeSurvey(*index, {.progress = {}, .stop = stop.get_token()}).status().code(),
            absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace millrace
