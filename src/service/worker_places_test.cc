#include "service/worker_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Found(std::vector<std::string> texts) {
  std::vector<WorkerPlace> places;
  for (const std::string& text : texts) {
    absl::StatusOr<WorkerPlace> place = ParseWorkerPlace(text);
    EXPECT_TRUE(place.ok()) << place.status();
    if (place.ok()) places.push_back(*std::move(place));
  }
  absl::StatusOr<std::vector<std::string>> found = WorkerFinder(std::move(places)).Find();
  EXPECT_TRUE(found.ok()) << found.status();
  return found.ok() ? *found : std::vector<std::string>();
}

TEST(WorkerPlacesTest, AddressesAndLists) {
  EXPECT_THAT(Found({"h:1", "[::1]:2"}), ElementsAre("h:1", "[::1]:2"));
  EXPECT_THAT(Found({"slurm:n[1-2],x:7070", "n2:7070", "h:1"}), ElementsAre("n1:7070", "n2:7070", "x:7070", "h:1"));
}

TEST(WorkerPlacesTest, NamesOfDns) {
  EXPECT_THAT(Found({"dns:localhost:7070"}), ::testing::Contains("127.0.0.1:7070"));
  EXPECT_THAT(Found({"dns:127.0.0.3:7070"}), ElementsAre("127.0.0.3:7070"));
  EXPECT_THAT(Found({"dns:there-is-no-such-name.invalid:7070"}), ElementsAre());
}

TEST(WorkerPlacesTest, WhichOfThemChange) {
  EXPECT_TRUE(ParseWorkerPlace("dns:x:1")->changes());
  for (const char* text : {"x:1", "slurm:x:1", "sagemaker:g:1"})
    EXPECT_FALSE(ParseWorkerPlace(text)->changes()) << text;
}

TEST(WorkerPlacesTest, WhatIsNone) {
  for (const char* text : {"", "x", "dns:x", "dns::1", "slurm:1", "slurm::1", "slurm:n[1:7", "slurm:n1:",
                           "slurm:n1:70700", "sagemaker:7", "sagemaker:g", "etcd://x:1/n", "zookeeper://x:1/n"}) {
    EXPECT_EQ(ParseWorkerPlace(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(WorkerPlacesTest, GroupsOfSageMaker) {
  constexpr std::string_view kConfig = R"({"current_group_name":"data_group","current_host":"algo-1",
      "hosts":["algo-1","algo-2","algo-3"],"network_interface_name":"eth0",
      "instance_groups":[{"hosts":["algo-1","algo-3"],"instance_group_name":"data_group","instance_type":"ml.c5.xlarge"},
                         {"hosts":["algo-2"],"instance_group_name":"dnn_group","instance_type":"ml.m4.xlarge"}]})";
  EXPECT_THAT(*HostsOfGroup(kConfig, "data_group"), ElementsAre("algo-1", "algo-3"));
  const absl::Status missing = HostsOfGroup(kConfig, "train").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ToStd(missing.message())), HasSubstr("data_group, dnn_group"));
  EXPECT_EQ(HostsOfGroup(R"({"hosts":["algo-1"]})", "g").status().code(), absl::StatusCode::kNotFound);
  for (const char* text : {"", "[]", "7", R"({"instance_groups":7})"}) {
    EXPECT_EQ(HostsOfGroup(text, "g").status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(WorkerPlacesTest, APlaceThatDoesNotExistIsAnError) {
  setenv("SM_INPUT_CONFIG_DIR", "/there/is/no/such/folder", 1);
  const absl::Status status = WorkerFinder({*ParseWorkerPlace("sagemaker:g:7070")}).Find().status();
  unsetenv("SM_INPUT_CONFIG_DIR");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(ToStd(status.message())), HasSubstr("/there/is/no/such/folder/resourceconfig.json"));
}

}  // namespace
}  // namespace millrace
