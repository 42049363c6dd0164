#include "service/allowed_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

namespace millrace {
namespace {

using ::testing::HasSubstr;

AllowedPlaces Below(const std::vector<std::string>& uris) {
  absl::StatusOr<AllowedPlaces> allowed = AllowedPlaces::Below(uris);
  EXPECT_TRUE(allowed.ok()) << allowed.status();
  return *allowed;
}

bool Allows(const AllowedPlaces& allowed, std::string_view uri) {
  return allowed.Check(uri).ok();
}

TEST(AllowedPlacesTest, EverywhereUnlessItIsSaid) {
  EXPECT_TRUE(Allows(AllowedPlaces(), "s3://any/where"));
  EXPECT_FALSE(Allows(Below({}), "s3://any/where"));
}

// Links and stores resolve them differently.
TEST(AllowedPlacesTest, NoNameGoesUp) {
  for (const AllowedPlaces& allowed : {AllowedPlaces(), Below({"/"}), Below({"/data", "s3://b"})}) {
    for (const char* uri :
         {"/data/..", "/data/x/../y", "../data", "file:///data/../data/x", "/data/{x,../y}", "s3://b/../b",
          "/data/[.][.]/data", "/data/\\.\\./data", "{/data/a,/data/../data/b}", "/data/*/../x"}) {
      const absl::Status denied = allowed.Check(uri);
      EXPECT_TRUE(absl::IsPermissionDenied(denied)) << uri << denied;
      EXPECT_THAT(denied.message(), HasSubstr("without '..'"));
    }
    EXPECT_TRUE(Allows(allowed, "/data/a..b/..c/{000..001}.tar"));
  }
}

TEST(AllowedPlacesTest, TellsItsFolders) {
  EXPECT_EQ(AllowedPlaces().folders(), std::nullopt);
  EXPECT_EQ(Below({"s3://b"}).folders(), std::vector<std::string>());
  EXPECT_EQ(Below({"/", "mem://b", "file:///dev/"}).folders(), (std::vector<std::string>{"/", "/dev"}));
}

TEST(AllowedPlacesTest, WholeNamesCount) {
  const AllowedPlaces allowed = Below({"s3://bucket/train", "s3://other"});
  EXPECT_TRUE(Allows(allowed, "s3://bucket/train"));
  EXPECT_TRUE(Allows(allowed, "s3://bucket/train/"));
  EXPECT_TRUE(Allows(allowed, "s3://bucket/train/part/a.tar"));
  EXPECT_TRUE(Allows(allowed, "s3://other/x"));
  EXPECT_FALSE(Allows(allowed, "s3://bucket/training"));
  EXPECT_FALSE(Allows(allowed, "s3://bucket"));
  EXPECT_FALSE(Allows(allowed, "s3://other2/x"));
  EXPECT_FALSE(Allows(allowed, "/train"));
  EXPECT_THAT(allowed.Check("s3://bucket/valid").message(), HasSubstr("--allow s3://bucket/valid"));
  EXPECT_TRUE(absl::IsInvalidArgument(allowed.Check("ftp://x")));
}

TEST(AllowedPlacesTest, AManifestNeedsItsWholeStore) {
  EXPECT_FALSE(Allows(Below({"s3://bucket/train"}), "s3://bucket/train/list.csv"));
  EXPECT_TRUE(Allows(Below({"s3://bucket"}), "s3://bucket/train/list.csv"));
}

// A data set may be named by a list, braces and wildcards.
TEST(AllowedPlacesTest, EveryNamedPlaceCounts) {
  const AllowedPlaces allowed = Below({"s3://bucket/train", "s3://bucket/valid"});
  EXPECT_TRUE(Allows(allowed, "s3://bucket/train/{a,b}/*.tar"));
  EXPECT_TRUE(Allows(allowed, "s3://bucket/{train,valid}/x"));
  EXPECT_TRUE(Allows(allowed, "{s3://bucket/train/a,s3://bucket/valid/b}"));
  EXPECT_TRUE(Allows(allowed, "s3://bucket/train/part-?[0-9]/**/x"));
  EXPECT_FALSE(Allows(allowed, "s3://bucket/{train,secret}/x"));
  EXPECT_FALSE(Allows(allowed, "{s3://bucket/train/a,s3://other/b}"));
  EXPECT_FALSE(Allows(allowed, "s3://bucket/train*/x"));
  EXPECT_FALSE(Allows(allowed, "s3://bucket/*/x"));
  EXPECT_FALSE(Allows(allowed, "s3://bucket/train/../secret/x"));
  EXPECT_FALSE(Allows(allowed, "s3://bucket/train/*/../../secret/x"));
  EXPECT_FALSE(Allows(allowed, "s3://bucket/train/*/[.]\\./../secret/x"));
  EXPECT_TRUE(Allows(allowed, "s3://bucket/train/..a/x"));
  // This holds whatever the working folder is.
  const std::string here = std::filesystem::current_path().string();
  EXPECT_FALSE(Allows(Below({here}), "{s3://bucket/secret/a,s3://bucket/secret/b}"));
  EXPECT_FALSE(Allows(Below({here}), here + "/{a,../../../../../../../../../etc}"));
  EXPECT_TRUE(Allows(Below({here}), "*.tar"));
  EXPECT_FALSE(Allows(Below({here}), "../*.tar"));
}

TEST(AllowedPlacesTest, FollowsLinksAndDots) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / ("allowed_places-" + std::to_string(getpid()));
  std::filesystem::remove_all(root);
  std::filesystem::create_directories(root / "open/sub");
  std::filesystem::create_directories(root / "secret");
  std::filesystem::create_directory_symlink(root / "secret", root / "open/link");
  const AllowedPlaces allowed = Below({(root / "open").string()});
  EXPECT_TRUE(Allows(allowed, (root / "open/sub").string()));
  EXPECT_TRUE(Allows(allowed, "file://" + (root / "open/not-there-yet").string()));
  EXPECT_FALSE(Allows(allowed, (root / "open/link").string()));
  EXPECT_FALSE(Allows(allowed, (root / "open/../secret").string()));
  EXPECT_FALSE(Allows(allowed, root.string()));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace millrace
