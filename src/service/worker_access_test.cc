#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dataset/dataset.h"
#include "pipeline/loader_plan.h"
#include "service/stream_spec.h"
#include "service/worker.h"
#include "service/worker_calls.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

/// There is a folder of texts that a trainer has opened, beside one that no worker may read, and a worker.
class WorkerAccessTest : public ::testing::Test {
 protected:
  WorkerAccessTest() : runtime_({.io_threads = 1, .cpu_threads = 1, .memory_bytes = uint64_t{256} << 20}) {
    std::string made = ::testing::TempDir() + "worker-access-XXXXXX";
    EXPECT_NE(mkdtemp(made.data()), nullptr);
    root_ = fs::canonical(made);
    setenv("MILLRACE_CACHE", (root_ / "cache").c_str(), 1);
    Write("open/deep/a.txt", "of the data a");
    Write("open/deep/b.txt", "of the data b");
    Write("secret/c.txt", "of nobody else");
  }
  ~WorkerAccessTest() override {
    worker_.reset();
    unsetenv("MILLRACE_CACHE");
    fs::remove_all(root_);
  }

  void Write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  // Returns the stream of a data set as the trainer sees it.
  StreamSpec SpecFor(const std::string& uri) {
    LoaderOptions options;
    options.fields = {{.name = "text", .field = "txt", .kind = BatchField::Kind::kText}};
    options.batch = 1;
    options.shuffle = Shuffle::kNone;
    options.memory_bytes = uint64_t{64} << 20;
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = Dataset::Open(runtime_, trainer_, uri);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    if (!dataset.ok()) return {};
    absl::StatusOr<LoaderPlan> plan = Settle(**dataset, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    options.start = Position{0, 0, plan->fingerprint};
    return *SpecOf(**dataset, options);
  }
  // Starts a new worker and returns its answer to a request for the batches of a stream.
  std::string Read(const StreamSpec& spec, const std::vector<std::string>& allow) {
    worker_.reset();
    absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Start(runtime_, stores_, {.port = 0, .allow = allow});
    EXPECT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    WorkerCalls calls(runtime_, {});
    const HttpEndpoint endpoint{.host = "127.0.0.1", .port = worker_->port()};
    const auto call = [&](const char* method, const std::string& target, std::string body) {
      const auto promise = std::make_shared<std::promise<WorkerAnswer>>();
      calls.Start(endpoint, method, target, std::move(body), 16 << 20,
                  [promise](WorkerAnswer answer) { promise->set_value(std::move(answer)); });
      return promise->get_future().get();
    };
    const std::string session = call("POST", "/millrace/open", EncodeStreamSpec(spec)).text;
    constexpr int kMostLooks = 600;
    int looks = 0;
    std::string got;
    for (int sequence = 0; sequence < 4;) {
      const WorkerAnswer answer =
          call("GET", fmt::format("/millrace/next?session={}&sequence={}", session, sequence), "");
      if (answer.status == 204 && ++looks < kMostLooks) continue;  // there is none yet
      got += answer.text + std::string(AsText(answer.bytes));
      if (answer.status != 200) break;
      ++sequence;
    }
    return got;
  }
  std::set<std::string> Files() const {
    std::set<std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(root_)) {
      const std::string name = entry.path().lexically_relative(root_);
      if (!name.starts_with("cache")) files.insert(name);
    }
    return files;
  }

  fs::path root_;
  Runtime runtime_;
  Stores trainer_{runtime_};
  Stores stores_{runtime_};
  std::unique_ptr<Worker> worker_;
};

TEST_F(WorkerAccessTest, ReadsWhatIsAllowed) {
  const StreamSpec spec = SpecFor(root_ / "open/deep");
  for (const std::vector<std::string>& allow : {std::vector<std::string>{}, {root_ / "open"}, {"/"}}) {
    const std::string got = Read(spec, allow);
    EXPECT_THAT(got, HasSubstr("of the data a"));
    EXPECT_THAT(got, HasSubstr("of the data b"));
  }
  // The braces name a folder that is not allowed, and a single file.
  Write("open/other/d.txt", "of the data d");
  const std::string both =
      Read(SpecFor(root_ / "open/{deep/a,other/d}.txt"), {root_ / "open/deep", root_ / "open/other"});
  EXPECT_THAT(both, HasSubstr("of the data a"));
  EXPECT_THAT(both, HasSubstr("of the data d"));
  EXPECT_THAT(Read(SpecFor(root_ / "open/deep/a.txt"), {root_ / "open/deep/a.txt"}), HasSubstr("of the data a"));
  EXPECT_THAT(Read(spec, {root_ / "open/other"}), HasSubstr("does not read"));
}

// A link that points deeper: the kernel goes up from there, and a lexical look from the link.
TEST_F(WorkerAccessTest, TakesNoNameWithDots) {
  Write("open/deep/er/c.txt", "x");
  fs::create_directory_symlink("deep/er", root_ / "open/latest");
  Write("open/secret/c.txt", "x");  // what the kernel finds
  StreamSpec spec = SpecFor(root_ / "secret");
  for (const char* uri : {"open/latest/../../secret/{c.txt,c.txt}", "open/latest/../../secret", "open/../secret/*.txt",
                          "open/deep/../../secret/c.txt", "{open/..,open/..}/secret"}) {
    spec.parts[0].uri =
        uri[0] == '{' ? fmt::format("{{{0}/open/..,{0}/open/..}}/secret", root_.string()) : (root_ / uri).string();
    for (const std::vector<std::string>& allow : {std::vector<std::string>{}, {root_ / "open"}}) {
      const std::string got = Read(spec, allow);
      EXPECT_THAT(got, HasSubstr("'..'")) << uri;
      EXPECT_THAT(got, Not(HasSubstr("of nobody else"))) << uri;
    }
  }
}

TEST_F(WorkerAccessTest, TrainersSendNamesWithoutDots) {
  const std::string open = root_ / "open";
  for (const std::string& uri : {fmt::format("{{{0}/deep/../deep/a.txt,{0}/deep/b.txt}}", open),
                                 open + "/{deep/a,../open/deep/b}.txt", open + "/../open/deep"}) {
    const StreamSpec spec = SpecFor(uri);
    EXPECT_THAT(spec.parts[0].uri, Not(HasSubstr(".."))) << uri;
    const std::string got = Read(spec, {open});
    EXPECT_THAT(got, HasSubstr("of the data a")) << uri;
    EXPECT_THAT(got, HasSubstr("of the data b")) << uri;
  }
}

TEST_F(WorkerAccessTest, FollowsNoLinkOutOfWhatIsAllowed) {
  const auto expect_denied = [&](const std::string& uri) {
    const StreamSpec spec = SpecFor(uri);  // with the index of the trainer, who may read it
    EXPECT_THAT(Read(spec, {"/"}), HasSubstr("of nobody else"));
    const std::set<std::string> before = Files();
    EXPECT_THAT(Read(spec, {root_ / "open"}), Not(HasSubstr("of nobody else")));
    EXPECT_EQ(Files(), before);
  };
  fs::create_symlink(root_ / "secret/c.txt", root_ / "open/deep/c.txt");
  expect_denied(root_ / "open/deep");
  expect_denied(root_ / "open/deep/{a,c}.txt");
  expect_denied(root_ / "open/deep/c.txt");
  fs::remove(root_ / "open/deep/c.txt");
  fs::create_directory_symlink("../secret", root_ / "open/more");
  expect_denied(root_ / "open");
  expect_denied(root_ / "open/**/*.txt");
}

TEST_F(WorkerAccessTest, FollowsLinksWithinWhatIsAllowed) {
  fs::create_symlink("a.txt", root_ / "open/deep/c.txt");
  fs::create_symlink(root_ / "open/deep/b.txt", root_ / "open/deep/d.txt");
  EXPECT_THAT(Read(SpecFor(root_ / "open/deep"), {root_ / "open"}), HasSubstr("of the data b"));
}

// It has no right to do so, and others may have no wish.
TEST_F(WorkerAccessTest, WritesNothingBesideData) {
  for (const char* uri : {"open/deep", "open/deep/*.txt", "open/deep/a.txt"}) {
    const StreamSpec spec = SpecFor(root_ / uri);
    fs::remove_all(root_ / "open/deep/.millrace");
    const std::set<std::string> before = Files();
    for (const std::vector<std::string>& allow : {std::vector<std::string>{}, {root_ / "open"}}) {
      fs::remove_all(root_ / "cache");
      EXPECT_THAT(Read(spec, allow), HasSubstr("of the data a")) << uri;
      EXPECT_EQ(Files(), before) << uri;
      EXPECT_FALSE(fs::is_empty(root_ / "cache/index"));
    }
  }
}

}  // namespace
}  // namespace millrace
