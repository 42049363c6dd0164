#include "pipeline/boxes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "shard/npy.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

constexpr ImageSize kImage{.width = 200, .height = 100};

std::string Text(const Box& box) {
  return fmt::format("{:g},{:g},{:g},{:g}", box.left, box.top, box.right, box.bottom);
}

std::string Parsed(std::string_view value, std::string_view form) {
  const absl::StatusOr<std::vector<Box>> boxes = ParseBoxes(AsBytes(value), *BoxSpec::Parse(form), kImage);
  if (!boxes.ok()) return std::string(ToStd(boxes.status().message()));
  std::string text;
  for (const Box& box : *boxes) text += (text.empty() ? "" : " ") + Text(box);
  return text;
}

TEST(Boxes, FormsOfJson) {
  EXPECT_EQ(Parsed("[[1,2,3,4],[5,6,7.5,8]]", "xyxy"), "1,2,3,4 5,6,7.5,8");
  EXPECT_EQ(Parsed("[1,2,3,4]", "xywh"), "1,2,4,6");
  EXPECT_EQ(Parsed("[[0.5,0.5,0.2,0.4]]", "cxcywh,normalized"), "80,30,120,70");
  EXPECT_EQ(Parsed("[]", "xyxy"), "");
  EXPECT_EQ(Parsed(R"({"a":[{"bbox":[1,2,3,4]},{"bbox":[2,2,1,1]}]})", "xywh:a.bbox"), "1,2,4,6 2,2,3,3");
  EXPECT_EQ(Parsed(R"({"a":[]})", "xywh:a.bbox"), "");
  EXPECT_EQ(Parsed(R"({"boxes":[[1,2,3,4]]})", "xyxy:boxes"), "1,2,3,4");
}

TEST(Boxes, FormsOfArrays) {
  for (const auto& [type, values] :
       {std::pair{"u1", std::string("\1\2\3\4", 4)}, {"i2", std::string("\1\0\2\0\3\0\xff\xff", 8)}}) {
    std::string file;
    AppendNpyHead(file, *ParseNumberType(type), std::vector<uint64_t>{1, 4});
    EXPECT_EQ(Parsed(file + values, "xyxy"), type == std::string("u1") ? "1,2,3,4" : "1,2,3,-1");
  }
  const std::vector<Box> boxes = {{1, 2, 3, 4}, {0.5, 0, 1e6, 7}};
  EXPECT_EQ(Parsed(BoxesToNpy(boxes), "xyxy"), "1,2,3,4 0.5,0,1e+06,7");
  EXPECT_EQ(Parsed(BoxesToNpy({}), "xyxy"), "");
}

TEST(Boxes, SayWhatIsWrong) {
  EXPECT_THAT(Parsed("x", "xyxy"), HasSubstr("no boxes"));
  EXPECT_THAT(Parsed("[[1,2,3]]", "xyxy"), HasSubstr("four numbers"));
  EXPECT_THAT(Parsed("[[[1,2,3,4]]]", "xyxy"), HasSubstr("four numbers"));
  EXPECT_THAT(Parsed("{}", "xyxy"), HasSubstr("JSON object"));
  EXPECT_THAT(Parsed("{}", "xyxy:a"), HasSubstr("no member 'a'"));
  EXPECT_THAT(Parsed(R"([[{"a":1}]])", "xyxy:a"), HasSubstr("list within a list"));
  std::string file;
  AppendNpyHead(file, *ParseNumberType("u1"), std::vector<uint64_t>{4, 1});
  EXPECT_THAT(Parsed(file + "1234", "xyxy"), HasSubstr("another shape"));
  file.clear();
  AppendNpyHead(file, *ParseNumberType("f2"), std::vector<uint64_t>{4});
  EXPECT_THAT(Parsed(file + std::string("\0\x7e\0\0\0\0\0\0", 8), "xyxy"), HasSubstr("not finite"));
  EXPECT_THAT(BoxSpec::Parse("yxyx").status().ToString(), HasSubstr("xyxy, xywh or cxcywh"));
}

TEST(Boxes, FollowTheCrop) {
  Frame frame{.image = kImage, .crop = {.x = 50, .y = 0, .width = 100, .height = 100}};
  EXPECT_EQ(Text(ShownBox({60, 10, 80, 50}, frame, 200, 50)), "20,5,60,25");
  EXPECT_EQ(Text(ShownBox({0, 10, 60, 50}, frame, 200, 50)), "0,5,20,25") << "clipped";
  EXPECT_EQ(Text(ShownBox({0, 10, 50, 50}, frame, 200, 50)), "0,0,0,0") << "outside";
  EXPECT_EQ(Text(ShownBox({160, 10, 170, 50}, frame, 200, 50)), "0,0,0,0") << "outside";
  EXPECT_EQ(Text(ShownBox({60, 10, 60, 50}, frame, 200, 50)), "0,0,0,0") << "no area";
  EXPECT_EQ(Text(ShownBox({80, 10, 60, 50}, frame, 200, 50)), "0,0,0,0") << "turned inside out";
  frame.crop.flip = true;
  EXPECT_EQ(Text(ShownBox({60, 10, 80, 50}, frame, 200, 50)), "140,5,180,25");
  EXPECT_EQ(Text(ShownBox({-1e9, -1e9, 1e9, 1e9}, frame, 200, 50)), "0,0,200,50");
  frame.crop.flip_vertical = true;
  EXPECT_EQ(Text(ShownBox({60, 10, 80, 50}, frame, 200, 50)), "140,25,180,45");
}

TEST(Boxes, FollowWarps) {
  Frame frame{.image = kImage, .crop = {.x = 50, .y = 0, .width = 100, .height = 100}};
  frame.warps = {{{1, 0, -30, 0, 1, 5}}, {{-1, 0, 200, 0, 1, 0}}};  // 30 to the right, 5 up; then mirrored
  EXPECT_EQ(Text(ShownBox({60, 20, 80, 50}, frame, 200, 50)), "110,5,150,20");
  EXPECT_EQ(Text(ShownBox({140, 20, 150, 50}, frame, 200, 50)), "0,0,0,0") << "shifted away";
}

}  // namespace
}  // namespace millrace
