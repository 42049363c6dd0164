#include "service/stream_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/crypto.h"
#include "dataset/dataset.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

StreamSpec Everything() {
  StreamSpec spec;
  spec.parts = {{.uri = "s3://bucket/train", .fingerprint = 77, .samples = 10}, {.uri = "/data", .samples = 3}};
  spec.parts[0].members = std::string("\3\1\4\4", 4);  // 1, 5, 9
  spec.parts[1].labels = LabelsFile{.uri = "/labels.csv", .key_column = "id", .label_column = "y", .quotes = false};
  spec.parts[1].labels_id = 99;
  spec.parts[1].classes = {"cat", "ant"};
  spec.tokens = TokenOptions{.layout = RowLayout::kStream, .length = 128, .documents = false, .stored = "uint16"};
  spec.function =
      RowFunction{.name = "a.b:c", .uri = "s3://bucket/train", .wants_tensors = true, .most_bytes = 1 << 20};
  spec.function->seed = UINT64_MAX;
  spec.function->is_mix = true;
  spec.function->rank = 1;
  spec.function->world = 2;
  spec.function->streams = 4;
  spec.function->stream = 3;
  LoaderOptions& options = spec.options;
  options.fields = {{.name = "mask", .field = "png", .kind = BatchField::Kind::kImage, .like = "image"},
                    {.name = "text", .field = "txt", .kind = BatchField::Kind::kText},
                    {.name = "boxes", .field = "json", .kind = BatchField::Kind::kBoxes, .like = "image"}};
  options.fields[2].boxes = {.form = BoxSpec::Form::kXywh, .normalized = true, .json_path = "a.bbox"};
  options.fields[0].image.numbers = true;
  options.image.height = 17;
  options.image.mean = {0.5F, 0.25F, 0.125F};
  options.image.dtype = DType::kF32;
  options.image.exact = true;
  options.image.interpolation = Interpolation::kBicubic;
  options.image.transforms = {{ImageTransform::Kind::kRandomResizedCrop, 1, {17, 224, 0.25, 1, 0.5, 2}},
                              {ImageTransform::Kind::kVerticalFlip, 0.125, {}}};
  options.label = LabelOptions{"json", {.kind = LabelSpec::Kind::kText, .json_path = "a.b"}};
  options.bad_samples = BadSamples::kReplace;
  options.padding = {{"label", -1}, {"mask", 0.5}};
  options.finite_padding = true;
  options.pad_token = -100;
  options.batch = 4;
  options.shuffle = Shuffle::kGlobal;
  options.window = 128;
  options.mix = MixOptions{.length = 50, .stages = {{0, {3, 1}}, {100, {1, 1}}}, .draws = Draws::kReplacement};
  options.seed = UINT64_MAX;
  options.epochs = 0;
  options.rank = 5;
  options.world = 8;
  options.last = LastBatch::kShort;
  options.start = Position{2, 32, 0xfeed};
  options.memory_bytes = 12345678;
  options.digest = DigestOf::kDecoded;
  return spec;
}

TEST(StreamSpecTest, ComesBackAsItWas) {
  const StreamSpec spec = Everything();
  const absl::StatusOr<StreamSpec> parsed = ParseStreamSpec(AsBytes(EncodeStreamSpec(spec)));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  ASSERT_EQ(parsed->parts.size(), 2u);
  EXPECT_EQ(parsed->parts[0].uri, "s3://bucket/train");
  EXPECT_EQ(parsed->parts[0].fingerprint, 77u);
  EXPECT_EQ(parsed->parts[0].members, spec.parts[0].members);
  EXPECT_FALSE(parsed->parts[1].members);
  EXPECT_FALSE(parsed->parts[0].labels);
  ASSERT_TRUE(parsed->parts[1].labels);
  EXPECT_EQ(parsed->parts[1].labels->uri, "/labels.csv");
  EXPECT_EQ(parsed->parts[1].labels->key_column, "id");
  EXPECT_FALSE(parsed->parts[1].labels->quotes);
  EXPECT_EQ(parsed->parts[1].labels->label_column, "y");
  EXPECT_EQ(parsed->parts[1].labels_id, 99u);
  EXPECT_THAT(parsed->parts[0].classes, testing::IsEmpty());
  EXPECT_THAT(parsed->parts[1].classes, testing::ElementsAre("cat", "ant"));
  EXPECT_EQ(parsed->tokens->layout, RowLayout::kStream);
  EXPECT_EQ(parsed->tokens->length, 128u);
  EXPECT_FALSE(parsed->tokens->documents);
  EXPECT_EQ(parsed->tokens->stored, "uint16");
  ASSERT_TRUE(parsed->function);
  EXPECT_EQ(parsed->function->name, "a.b:c");
  EXPECT_EQ(parsed->function->uri, "s3://bucket/train");
  EXPECT_TRUE(parsed->function->wants_tensors);
  EXPECT_EQ(parsed->function->most_bytes, 1u << 20);
  EXPECT_EQ(parsed->function->seed, UINT64_MAX);
  EXPECT_TRUE(parsed->function->is_mix);
  EXPECT_EQ(parsed->function->rank, 1u);
  EXPECT_EQ(parsed->function->world, 2u);
  EXPECT_EQ(parsed->function->streams, 4u);
  EXPECT_EQ(parsed->function->stream, 3u);
  const LoaderOptions& options = parsed->options;
  ASSERT_EQ(options.fields.size(), 3u);
  EXPECT_EQ(options.fields[2].boxes, spec.options.fields[2].boxes);
  EXPECT_EQ(options.fields[2].like, "image");
  EXPECT_EQ(options.fields[0].like, "image");
  EXPECT_TRUE(options.fields[0].image.numbers);
  EXPECT_EQ(options.fields[1].kind, BatchField::Kind::kText);
  EXPECT_EQ(options.image.height, 17);
  EXPECT_EQ(options.image.mean, spec.options.image.mean);
  EXPECT_EQ(options.image.dtype, DType::kF32);
  EXPECT_TRUE(options.image.exact);
  EXPECT_EQ(options.image.interpolation, Interpolation::kBicubic);
  ASSERT_EQ(options.image.transforms.size(), 2u);
  EXPECT_EQ(options.image.transforms[0].numbers, (std::vector<double>{17, 224, 0.25, 1, 0.5, 2}));
  EXPECT_EQ(options.image.transforms[1].kind, ImageTransform::Kind::kVerticalFlip);
  EXPECT_EQ(options.image.transforms[1].probability, 0.125);
  EXPECT_EQ(options.label->field, "json");
  EXPECT_EQ(options.label->spec, spec.options.label->spec);
  EXPECT_EQ(options.bad_samples, BadSamples::kReplace);
  EXPECT_EQ(options.padding, spec.options.padding);
  EXPECT_TRUE(options.finite_padding);
  EXPECT_EQ(options.pad_token, -100);
  EXPECT_EQ(options.batch, 4u);
  EXPECT_EQ(options.shuffle, Shuffle::kGlobal);
  EXPECT_EQ(options.window, 128u);
  EXPECT_FALSE(options.lanes);
  EXPECT_EQ(options.mix->stages[1].from, 100u);
  EXPECT_EQ(options.mix->stages[0].weights, (std::vector<uint64_t>{3, 1}));
  EXPECT_EQ(options.mix->draws, Draws::kReplacement);
  EXPECT_EQ(options.seed, UINT64_MAX);
  EXPECT_EQ(options.epochs, 0u);
  EXPECT_EQ(options.rank, 5u);
  EXPECT_EQ(options.world, 8u);
  EXPECT_EQ(options.last, LastBatch::kShort);
  EXPECT_EQ(options.start->ToString(), spec.options.start->ToString());
  EXPECT_EQ(options.memory_bytes, 12345678u);
  EXPECT_EQ(options.digest, DigestOf::kDecoded);
}

TEST(StreamSpecTest, RefusesWhatIsCutOrFollowedByMore) {
  const std::string bytes = EncodeStreamSpec(Everything());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseStreamSpec(AsBytes(bytes.substr(0, length))).status())) << length;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ParseStreamSpec(AsBytes(bytes + '\0')).status()));
}

// Names with commas come back from the list that a worker gets.
TEST(StreamSpecTest, ListsHoldNamesWithCommas) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / ("spec-" + RandomHex(12));
  std::filesystem::create_directories(root / "x,y{z}");
  for (const char* name : {"a.jpg", "b.jpg", "c.jpg"}) std::ofstream(root / "x,y{z}" / name) << name;
  Runtime runtime;
  Stores stores(runtime);
  const std::unique_ptr<Dataset> dataset =
      *Dataset::Open(runtime, stores, (root / "gone/../x,y{z}/{a,b}.jpg").string());
  ASSERT_EQ(dataset->index().size(), 2u);
  const absl::StatusOr<StreamSpec> spec = SpecOf(*dataset, {});
  ASSERT_TRUE(spec.ok()) << spec.status();
  const std::string& uri = spec->parts[0].uri;
  EXPECT_THAT(uri, HasSubstr("x\\,y\\{z\\}/a.jpg,"));
  EXPECT_EQ((*Dataset::Open(runtime, stores, uri))->index().size(), 2u) << uri;
  std::filesystem::remove_all(root);
}

TEST(StreamSpecTest, NamesTheVersions) {
  std::string bytes = EncodeStreamSpec(Everything());
  bytes[std::string_view("millrace-stream").size()] = 9;
  EXPECT_THAT(ParseStreamSpec(AsBytes(bytes)).status().message(), HasSubstr("version 9"));
}

TEST(StreamSpecTest, MembersAreThoseOfTheSelection) {
  const absl::StatusOr<Selection> members = MembersOf(Everything().parts[0]);
  ASSERT_TRUE(members.ok()) << members.status();
  ASSERT_EQ(members->size(), 3u);
  EXPECT_EQ(members->At(0), 1u);
  EXPECT_EQ(members->At(1), 5u);
  EXPECT_EQ(members->At(2), 9u);
}

TEST(StreamSpecTest, DamagedMembersAreRefused) {
  StreamSpec::Part part = Everything().parts[0];
  const std::string huge = std::string("\2\1", 2) + std::string(9, '\xff') + '\1';
  for (const std::string& members : {std::string(), std::string("\3\1\4", 3), std::string("\3\1\4\5", 4),
                                     std::string("\2\1\0", 3), std::string("\1\1\1", 3), huge}) {
    part.members = members;
    EXPECT_TRUE(absl::IsInvalidArgument(MembersOf(part).status())) << members.size();
  }
}

}  // namespace
}  // namespace millrace
