// These tests show how the whole client takes what a store can do to it. A table lists faults of devstore, each with
// the result that is required. tests/README.md has the same as a list.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "aws/settings.h"
#include "base/crypto.h"
#include "store/blocking.h"
#include "store/testing/devstore_bucket.h"

namespace millrace {
namespace {

using std::chrono::milliseconds;

constexpr uint64_t kSeed = 20261121;
constexpr ByteRange kRange{1000, 100'000};  // of the object "k", of 200,000 bytes

/// An Act does with a Scene what a scenario does with the bucket. It checks what it reads, and returns how it ended.
struct Scene {
  DevstoreBucket& bucket;
  DevstoreBucket::Client& client;
  const std::string object = SeededBytes(200'000, kSeed);
  std::string etag;

  ObjectStore& store() { return client.store; }
};
using Act = absl::Status (*)(Scene&);

absl::Status Read(Scene& scene, GetOptions options) {
  std::string buffer(options.range.length, '?');
  const ByteRange range = options.range;
  RETURN_IF_ERROR(GetBlocking(scene.store(), "k", WritableBytes(buffer), std::move(options)).status());
  EXPECT_TRUE(buffer == scene.object.substr(range.offset, range.length)) << "wrong bytes";
  return absl::OkStatus();
}

/// As a loader reads: of the version in the index, with checksums.
absl::Status ReadIndexed(Scene& scene) {
  constexpr uint64_t kSample = 10'000;
  GetOptions options{.range = kRange, .if_match = scene.etag};
  for (uint64_t at = kRange.offset; at < kRange.end(); at += kSample) {
    const std::string_view sample = std::string_view(scene.object).substr(at, kSample);
    options.checksums.push_back({{at, kSample}, Crc32c(AsBytes(sample))});
  }
  return Read(scene, std::move(options));
}

/// Reads over a connection that was used before.
absl::Status ReadTwice(Scene& scene) {
  RETURN_IF_ERROR(ReadIndexed(scene));
  return ReadIndexed(scene);
}

absl::Status ReadAnyVersion(Scene& scene) {
  return Read(scene, {.range = kRange});
}

/// As `cp` reads: against the checksum that the store keeps.
absl::Status ReadWhole(Scene& scene) {
  return Read(scene, {.range = {0, scene.object.size()}, .whole = true});
}

absl::Status HeadIt(Scene& scene) {
  ASSIGN_OR_RETURN(const ObjectInfo info, HeadBlocking(scene.store(), "k"));
  EXPECT_EQ(info.etag, scene.etag);
  EXPECT_EQ(info.size, scene.object.size());
  return absl::OkStatus();
}

absl::Status ListIt(Scene& scene) {
  ASSIGN_OR_RETURN(const std::vector<ObjectInfo> objects, ListAll(scene.store(), ""));
  EXPECT_EQ(objects.size(), 1u);
  return absl::OkStatus();
}

/// Checks what is stored under "new", as seen by a client whose settings suit the server.
void ExpectWritten(Scene& scene, const std::string& bytes) {
  const auto other = scene.bucket.NewClient(/*adjusted=*/false);
  const auto got = ReadAll(other->store, "new", uint64_t{1} << 30);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_TRUE(*got == bytes) << "wrong bytes";
}

absl::Status PutIt(Scene& scene) {
  RETURN_IF_ERROR(PutBlocking(scene.store(), "new", AsBytes(scene.object)).status());
  ExpectWritten(scene, scene.object);
  return absl::OkStatus();
}

absl::Status PutIfAbsent(Scene& scene) {
  RETURN_IF_ERROR(PutBlocking(scene.store(), "new", AsBytes(scene.object), {.only_if_absent = true}).status());
  ExpectWritten(scene, scene.object);
  return absl::OkStatus();
}

/// Two parts.
absl::Status WriteLarge(Scene& scene) {
  const std::string bytes = SeededBytes(9 << 20, kSeed);
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, scene.store().Write("new", {}));
  RETURN_IF_ERROR(writer->Append(AsBytes(bytes)));
  RETURN_IF_ERROR(writer->Commit().status());
  ExpectWritten(scene, bytes);
  return absl::OkStatus();
}

absl::Status DeleteIt(Scene& scene) {
  RETURN_IF_ERROR(DeleteBlocking(scene.store(), "k"));
  EXPECT_TRUE(absl::IsNotFound(HeadBlocking(scene.store(), "k").status()));
  return absl::OkStatus();
}

absl::Status DeleteMany(Scene& scene) {
  std::promise<std::vector<absl::Status>> done;
  scene.store().Delete({"a", "k", "z"}, [&](std::vector<absl::Status> statuses) { done.set_value(statuses); });
  for (const absl::Status& status : done.get_future().get()) RETURN_IF_ERROR(status);
  EXPECT_TRUE(absl::IsNotFound(HeadBlocking(scene.store(), "k").status()));
  return absl::OkStatus();
}

struct Scenario {
  std::string name;
  std::vector<std::string> faults;
  Act act = ReadIndexed;
  int retries = 1;  // requests beyond the first
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string words;  // of the error
  int64_t clock_offset_s = 0;
  void (*adjust)(S3Config&) = nullptr;
  bool elsewhere = false;             // a server of another region, which does not look at signatures
  bool nothing_twice = false;         // no byte is received that was received before
  uint64_t preconditions_failed = 0;  // requests with an If-Match that the store answered by 412
  milliseconds at_least{0};
};
constexpr int kAnyNumber = -1;
constexpr auto kUnavailable = absl::StatusCode::kUnavailable;

void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}

void TryThrice(S3Config& config) {
  config.max_attempts = 3;
}

void OneConnection(S3Config& config) {
  config.max_connections = 1;
}

/// Writes a profile in which the same keys are found when they are looked up again.
void WithProfile(S3Config& config) {
  const std::string text = fmt::format("[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n",
                                       config.credentials.access_key, config.credentials.secret_key);
  config.credential_environment = std::make_shared<AwsEnvironment>(
      AwsEnvironment{.variable =
                         [](const std::string& name) {
                           return name == "HOME" ? std::optional<std::string>("/home/me") : std::nullopt;
                         },
                     .read_file = [text](const std::string& path) -> absl::StatusOr<std::string> {
                       if (path.ends_with("credentials")) return text;
                       return absl::NotFoundError(path);
                     }});
}

void FromUsEast(S3Config& config) {
  config.region = "us-east-1";
}

void FromUsWest(S3Config& config) {
  config.region = "us-west-2";
}

/// The connection ends in the head, or behind so many bytes of the body.
std::vector<Scenario> Breaks() {
  std::vector<Scenario> all;
  for (const std::string how : {"cut", "reset"}) {
    for (const std::string where : {"head", "head:1", "head:30", "0", "1", "50000", "99999"}) {
      std::string name = fmt::format("{}_{}", how, where);
      std::replace(name.begin(), name.end(), ':', '_');
      all.push_back(
          {.name = name, .faults = {fmt::format("GET bkt/k {}={} count=1", how, where)}, .nothing_twice = true});
    }
    // The connection ends after the request on a kept connection, and before an answer: as S3 drops idle connections.
    all.push_back({.name = "stale_" + how,
                   .faults = {"GET bkt/k " + how + "=head after=1 count=1"},
                   .act = ReadTwice,
                   .adjust = OneConnection});
  }
  all.push_back({.name = "closed_behind_the_answer",
                 .faults = {"GET bkt/k cut=1000000 count=1"},
                 .act = ReadTwice,
                 .retries = kAnyNumber,
                 .adjust = OneConnection});
  all.push_back({.name = "connection_close", .faults = {"GET bkt/k close"}, .act = ReadTwice, .retries = 0});
  all.push_back({.name = "cut_for_ever",
                 .faults = {"GET bkt/k cut=0"},
                 .retries = 2,
                 .code = kUnavailable,
                 .words = "after 3 attempts",
                 .adjust = TryThrice});
  return all;
}

std::vector<Scenario> Bodies() {
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  return {
      {.name = "chunked", .faults = {"GET bkt/k chunked"}, .retries = 0},
      {.name = "chunked_without_end", .faults = {"GET bkt/k chunked=50000 count=1"}, .nothing_twice = true},
      {.name = "flip_of_the_first_byte", .faults = {"GET bkt/k flip=0 count=1"}},
      {.name = "flip_in_the_middle", .faults = {"GET bkt/k flip=50000 count=1"}},
      {.name = "flip_of_the_last_byte", .faults = {"GET bkt/k flip=99999 count=1"}},
      {.name = "flips_for_ever",
       .faults = {"GET bkt/k flip=0"},
       .retries = 3,
       .code = kLoss,
       .words = "do not match their checksum"},
      {.name = "flip_in_a_whole_object", .faults = {"GET bkt/k flip=70000 count=1"}, .act = ReadWhole},
      {.name = "flips_in_a_whole_object_for_ever",
       .faults = {"GET bkt/k flip=70000"},
       .act = ReadWhole,
       .code = kLoss,
       .words = "does not match the CRC32C"},
      {.name = "the_whole_object_instead_of_the_range", .faults = {"GET bkt/k whole"}, .retries = 0},
      {.name = "another_range", .faults = {"GET bkt/k wrong-range count=2"}, .retries = 2, .nothing_twice = true},
      {.name = "another_range_for_ever",
       .faults = {"GET bkt/k wrong-range"},
       .retries = 2,
       .code = kUnavailable,
       .words = "the store sent the range",
       .adjust = TryThrice},
      {.name = "a_short_range", .faults = {"GET bkt/k short-range count=2"}, .retries = 2, .nothing_twice = true},
      {.name = "a_short_range_for_ever",
       .faults = {"GET bkt/k short-range"},
       .retries = 2,
       .code = kUnavailable,
       .words = "the store sent the range",
       .adjust = TryThrice},
      {.name = "trickle", .faults = {"GET bkt/k rate=256 count=1"}},
      {.name = "stall", .faults = {"GET bkt/k stall=50000:3600000 count=1"}},
  };
}

std::vector<Scenario> Versions() {
  constexpr auto kChanged = absl::StatusCode::kFailedPrecondition;
  return {
      {.name = "overwritten",
       .faults = {"GET bkt/k new-etag count=1"},
       .retries = 0,
       .code = kChanged,
       .words = "the object has been replaced",
       .preconditions_failed = 1},
      {.name = "overwritten_while_it_is_read",
       .faults = {"GET bkt/k cut=50000 count=1", "GET bkt/k new-etag count=1"},
       .code = kChanged,
       .words = "the object has been replaced",
       .preconditions_failed = 1},
      // The rest is asked for of the same version; when that is gone, everything of the new one.
      {.name = "any_version_overwritten_while_it_is_read",
       .faults = {"GET bkt/k cut=50000 count=1", "GET bkt/k new-etag count=1"},
       .act = ReadAnyVersion,
       .retries = 2,
       .preconditions_failed = 1},
  };
}

/// Statuses and codes that come and go.
std::vector<Scenario> Errors() {
  std::vector<Scenario> all;
  for (const std::string error :
       {"status=408", "status=429", "status=500", "status=502", "status=503", "status=504", "error=400:RequestTimeout",
        "error=409:OperationAborted", "error=503:ServiceUnavailable", "error-in-200"}) {
    std::string name = error.substr(error.find('=') + 1);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !absl::ascii_isalnum(c); }, '_');
    for (const auto& [verb, act] : std::vector<std::pair<std::string, Act>>{
             {"GET", ReadIndexed}, {"PUT", PutIt}, {"HEAD", HeadIt}, {"DELETE", DeleteIt}}) {
      if (verb == "HEAD" && error.starts_with("error")) continue;  // an answer without a body has no code
      all.push_back({.name = fmt::format("{}_{}", verb, name),
                     .faults = {fmt::format("{} bkt/{} {} count=2", verb, verb == "PUT" ? "new" : "k", error)},
                     .act = act,
                     .retries = 2});
    }
  }
  all.push_back({.name = "retry_after", .faults = {"GET bkt/k retry-after=1 count=1"}, .at_least = milliseconds(1000)});
  all.push_back({.name = "500_for_ever_is_not_missing",
                 .faults = {"GET bkt/k status=500"},
                 .retries = 2,
                 .code = kUnavailable,
                 .words = "InternalError",
                 .adjust = TryThrice});
  return all;
}

/// Lists errors that stay.
std::vector<Scenario> Refusals() {
  struct Row {
    std::string error;
    absl::StatusCode code;
    std::string words;
  };
  const std::vector<Row> rows = {
      {"error=403:AccessDenied", absl::StatusCode::kPermissionDenied, "no permission"},
      {"error=403:InvalidAccessKeyId", absl::StatusCode::kUnauthenticated, "AWS_ACCESS_KEY_ID"},
      {"error=403:SignatureDoesNotMatch", absl::StatusCode::kUnauthenticated, "AWS_SECRET_ACCESS_KEY"},
      {"error=403:InvalidObjectState", absl::StatusCode::kFailedPrecondition, "archived"},
      {"error=404:NoSuchKey", absl::StatusCode::kNotFound, "the object does not exist"},
      {"error=404:NoSuchBucket", absl::StatusCode::kNotFound, "the bucket does not exist"},
      {"error=400:ExpiredToken", absl::StatusCode::kUnauthenticated, "AWS_SESSION_TOKEN"},
      {"error=301:PermanentRedirect", absl::StatusCode::kInvalidArgument, "AWS_REGION"},
      {"error=307:TemporaryRedirect", absl::StatusCode::kInvalidArgument, "AWS_REGION"},
  };
  std::vector<Scenario> all;
  for (const Row& row : rows) {
    all.push_back({.name = row.error.substr(row.error.find(':') + 1) + "_stays",
                   .faults = {"GET bkt/k " + row.error},
                   .retries = 0,
                   .code = row.code,
                   .words = row.words});
  }
  return all;
}

/// Clocks, credentials, regions.
std::vector<Scenario> Identities() {
  std::vector<Scenario> all;
  for (const auto& [name, offset, retries] :
       std::vector<std::tuple<std::string, int64_t, int>>{{"clock_a_little_ahead", 600, 0},
                                                          {"clock_a_little_behind", -600, 0},
                                                          {"clock_ahead", 3600, 1},
                                                          {"clock_behind", -3600, 1}}) {
    all.push_back({.name = name, .retries = retries, .clock_offset_s = offset});
  }
  all.push_back({.name = "wrong_region", .adjust = FromUsWest});
  for (const std::string code : {"400:ExpiredToken", "403:InvalidToken"}) {
    const std::string name = code.substr(4);
    all.push_back({.name = name + "_once", .faults = {"GET bkt/k error=" + code + " count=1"}, .adjust = WithProfile});
    all.push_back({.name = name + "_for_ever",
                   .faults = {"GET bkt/k error=" + code},
                   .code = absl::StatusCode::kUnauthenticated,
                   .words = "renew the temporary credentials",
                   .adjust = WithProfile});
  }
  for (const std::string code :
       {"301:PermanentRedirect", "307:TemporaryRedirect", "400:IllegalLocationConstraintException"}) {
    all.push_back({.name = code.substr(4),
                   .faults = {"GET bkt/k error=" + code + " count=1"},
                   .adjust = FromUsEast,
                   .elsewhere = true});
  }
  return all;
}

std::vector<Scenario> Writes() {
  return {
      {.name = "PUT_answer_lost", .faults = {"PUT bkt/new cut=head count=1"}, .act = PutIt},
      {.name = "PUT_reset", .faults = {"PUT bkt/new reset=head count=1"}, .act = PutIt},
      {.name = "PUT_BadDigest", .faults = {"PUT bkt/new error=400:BadDigest count=1"}, .act = PutIt},
      // The second attempt meets what the first has written.
      {.name = "PUT_if_absent_answer_lost",
       .faults = {"PUT bkt/new cut=head count=1"},
       .act = PutIfAbsent,
       .retries = 2},
      {.name = "UploadPart_500", .faults = {"PUT bkt/new status=500 count=2"}, .act = WriteLarge, .retries = 2},
      {.name = "UploadPart_answer_lost", .faults = {"PUT bkt/new cut=head count=1"}, .act = WriteLarge},
      {.name = "CreateMultipartUpload_503", .faults = {"POST bkt/new status=503 count=1"}, .act = WriteLarge},
      {.name = "CompleteMultipartUpload_error_in_200",
       .faults = {"POST bkt/new error-in-200 after=1 count=1"},
       .act = WriteLarge},
      // The second attempt gets NoSuchUpload; a HEAD shows that the first one had succeeded.
      {.name = "CompleteMultipartUpload_answer_lost",
       .faults = {"POST bkt/new cut=head after=1 count=1"},
       .act = WriteLarge,
       .retries = 2},
      {.name = "DELETE_answer_lost", .faults = {"DELETE bkt/k cut=head count=1"}, .act = DeleteIt},
      {.name = "DeleteObjects_error_in_200", .faults = {"POST bkt/ error-in-200 count=1"}, .act = DeleteMany},
      {.name = "DeleteObjects_answer_lost", .faults = {"POST bkt/ cut=head count=1"}, .act = DeleteMany},
      {.name = "DeleteObjects_503", .faults = {"POST bkt/ status=503 count=1"}, .act = DeleteMany},
  };
}

std::vector<Scenario> Listings() {
  return {
      {.name = "LIST_503", .faults = {"GET bkt/ status=503 count=1"}, .act = ListIt},
      {.name = "LIST_cut", .faults = {"GET bkt/ cut=100 count=1"}, .act = ListIt},
      {.name = "LIST_reset", .faults = {"GET bkt/ reset=head count=1"}, .act = ListIt},
      {.name = "LIST_error_in_200", .faults = {"GET bkt/ error-in-200 count=1"}, .act = ListIt},
      {.name = "LIST_chunked", .faults = {"GET bkt/ chunked"}, .act = ListIt, .retries = 0},
      {.name = "LIST_chunked_without_end", .faults = {"GET bkt/ chunked=100 count=1"}, .act = ListIt},
      {.name = "HEAD_reset", .faults = {"HEAD bkt/k reset=head count=1"}, .act = HeadIt},
  };
}

class S3Scenarios : public ::testing::TestWithParam<Scenario> {};

TEST_P(S3Scenarios, EndAsTheyShould) {
  const Scenario& scenario = GetParam();
  DevstoreOptions options;
  options.faults = scenario.faults;
  options.seed = kSeed;
  options.clock_offset_s = scenario.clock_offset_s;
  options.anonymous = scenario.elsewhere;
  if (scenario.elsewhere) options.region = "eu-west-1";
  DevstoreBucket bucket(std::move(options), [&](S3Config& config) {
    if (scenario.adjust) scenario.adjust(config);
  });
  const auto client = bucket.NewClient();
  Scene scene{.bucket = bucket, .client = *client};
  const auto put = PutBlocking(bucket.NewClient(/*adjusted=*/false)->store, "k", AsBytes(scene.object));
  ASSERT_TRUE(put.ok()) << put.status();
  scene.etag = put->etag;

  const auto begin = std::chrono::steady_clock::now();
  const absl::Status status = scenario.act(scene);
  const auto took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);

  EXPECT_EQ(status.code(), scenario.code) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(scenario.words));
  const RequestCounters& counters = client->s3.counters();
  if (scenario.retries != kAnyNumber) {
    EXPECT_EQ(counters.retries, static_cast<uint64_t>(scenario.retries));
  }
  if (scenario.nothing_twice) {
    EXPECT_EQ(counters.bytes_read, kRange.length);
  }
  EXPECT_EQ(bucket.server().counters()[std::make_pair("GET", 412)], scenario.preconditions_failed);
  EXPECT_GE(took, scenario.at_least);
  for (const uint64_t firings : bucket.server().fault_firings()) EXPECT_GT(firings, 0u) << "the fault was not injected";
}

std::string ScenarioName(const ::testing::TestParamInfo<Scenario>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Breaks, S3Scenarios, ::testing::ValuesIn(Breaks()), ScenarioName);
INSTANTIATE_TEST_SUITE_P(Bodies, S3Scenarios, ::testing::ValuesIn(Bodies()), ScenarioName);
INSTANTIATE_TEST_SUITE_P(Versions, S3Scenarios, ::testing::ValuesIn(Versions()), ScenarioName);
INSTANTIATE_TEST_SUITE_P(Errors, S3Scenarios, ::testing::ValuesIn(Errors()), ScenarioName);
INSTANTIATE_TEST_SUITE_P(Refusals, S3Scenarios, ::testing::ValuesIn(Refusals()), ScenarioName);
INSTANTIATE_TEST_SUITE_P(Identities, S3Scenarios, ::testing::ValuesIn(Identities()), ScenarioName);
INSTANTIATE_TEST_SUITE_P(Writes, S3Scenarios, ::testing::ValuesIn(Writes()), ScenarioName);
INSTANTIATE_TEST_SUITE_P(Listings, S3Scenarios, ::testing::ValuesIn(Listings()), ScenarioName);

}  // namespace
}  // namespace millrace
