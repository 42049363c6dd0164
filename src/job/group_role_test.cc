#include "job/group_role.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace millrace {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kGroups = {"data", "train"};

ReadVariable Variables(std::map<std::string, std::string> values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(FindRole, FlagsSayTheRole) {
  const RoleFlags flags{.role = "train", .coordinator = "h:81", .main_hosts = 2, .host_index = {}};
  EXPECT_THAT(std::string(FindRole(flags, kGroups, {}, Variables({})).status().message()), HasSubstr("--host-index"));
  const GroupRole first = *FindRole(flags, kGroups, {}, Variables({{"JOB_COMPLETION_INDEX", "0"}}));
  EXPECT_TRUE(first.coordinates);
  EXPECT_EQ(first.coordinator, "h");
  EXPECT_EQ(first.port, 81);
  EXPECT_FALSE(FindRole(flags, kGroups, {}, Variables({{"JOB_COMPLETION_INDEX", "1"}}))->coordinates);
  EXPECT_FALSE(FindRole({.role = "data", .coordinator = "h:81"}, kGroups, {}, Variables({}))->coordinates);
  EXPECT_FALSE(FindRole({.role = "other", .coordinator = "h:81"}, kGroups, {}, Variables({})).ok());
}

TEST(FindRole, SlurmSaysTheRole) {
  const std::map<std::string, std::string> slurm = {{"SLURM_HET_SIZE", "2"},
                                                    {"SLURM_JOB_NODELIST_HET_GROUP_0", "n[1-2]"},
                                                    {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[3-5]"},
                                                    {"SLURMD_NODENAME", "n3"}};
  const GroupRole role = *FindRole({}, kGroups, {}, Variables(slurm));
  EXPECT_EQ(role.group, "train");
  EXPECT_TRUE(role.coordinates);
  EXPECT_EQ(role.main_hosts, 3u);
  std::map<std::string, std::string> other = slurm;
  other["SLURMD_NODENAME"] = "n2";
  EXPECT_EQ(FindRole({}, kGroups, {}, Variables(other))->group, "data");
  other["SLURMD_NODENAME"] = "n9";
  EXPECT_FALSE(FindRole({}, kGroups, {}, Variables(other)).ok());
  EXPECT_THAT(std::string(FindRole({}, {"one"}, {}, Variables(slurm)).status().message()), HasSubstr("2 components"));
}

TEST(FindRole, SageMakerSaysTheRole) {
  const std::string config =
      R"({"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "instance_groups": [
         {"instance_group_name": "data", "instance_type": "x", "hosts": ["algo-1"]},
         {"instance_group_name": "train", "instance_type": "x", "hosts": ["algo-2"]}]})";
  const GroupRole role = *FindRole({}, kGroups, config, Variables({}));
  EXPECT_EQ(role.group, "data");
  EXPECT_EQ(role.coordinator, "algo-2");
  EXPECT_FALSE(role.coordinates);
  EXPECT_FALSE(role.port);
  EXPECT_EQ(FindRole({.coordinator = "other:9"}, kGroups, config, Variables({}))->coordinator, "other");
}

TEST(FindRole, NothingSaysTheRole) {
  EXPECT_THAT(std::string(FindRole({}, kGroups, {}, Variables({})).status().message()), HasSubstr("--role"));
}

}  // namespace
}  // namespace millrace
