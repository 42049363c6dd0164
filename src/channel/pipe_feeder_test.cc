#include "channel/pipe_feeder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <condition_variable>
#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include "net/runtime.h"
#include "store/blocking.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Has a channel of a store in memory, and its feeder.
class PipeFeederTest : public ::testing::Test {
 protected:
  PipeFeederTest() {
    signal(SIGPIPE, SIG_IGN);
    store_ = stores_.Open("mem://data")->store;
  }

  void Put(const std::string& key, const std::string& text) {
    ASSERT_TRUE(PutBlocking(*store_, key, AsBytes(text)).ok());
  }
  void Find(const std::string& options) {
    const absl::StatusOr<Channel> channel = ParseChannel("train=mem://data/p,mode=Pipe" + options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
    absl::StatusOr<ChannelItems> items = FindChannelItems(stores_, channel_);
    ASSERT_TRUE(items.ok()) << items.status();
    items_ = *std::move(items);
  }
  absl::StatusOr<std::unique_ptr<PipeFeeder>> Make(uint64_t rank = 0, uint64_t world = 1, uint64_t epochs = 1) {
    PipeFeederOptions options{.path = folder_ / "train", .rank = rank, .world = world, .epochs = epochs};
    options.fed = [this](const FedEpoch& fed) {
      std::lock_guard lock(mutex_);
      fed_.push_back(fed);
      changed_.notify_all();
    };
    options.failed = [this](const absl::Status& status) {
      std::lock_guard lock(mutex_);
      failure_ = status;
      changed_.notify_all();
    };
    return PipeFeeder::Make(*store_, channel_, items_, std::move(options));
  }
  std::string Fifo(uint64_t epoch) const { return fmt::format("{}/train_{}", folder_.path(), epoch); }
  std::string Read(uint64_t epoch) const {
    std::ifstream file(Fifo(epoch), std::ios::binary);
    EXPECT_TRUE(file.is_open()) << epoch;
    return {std::istreambuf_iterator<char>(file), {}};
  }
  FedEpoch WaitForFed(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fed_.size() >= count; });
    return fed_[count - 1];
  }

  TempFolder folder_;
  Runtime runtime_{{.cpu_threads = 1}};
  Stores stores_{runtime_};
  ObjectStore* store_ = nullptr;
  Channel channel_;
  ChannelItems items_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<FedEpoch> fed_;
  absl::Status failure_;
};

TEST_F(PipeFeederTest, AnEpochAfterTheOther) {
  for (const char* key : {"p/b", "p/a", "p/c"}) Put(key, key);
  Find("");
  auto feeder = Make();
  ASSERT_TRUE(feeder.ok()) << feeder.status();
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    EXPECT_EQ(Read(epoch), "p/ap/bp/c");
    EXPECT_NE(access(Fifo(epoch).c_str(), F_OK), 0);  // it is one epoch's
    EXPECT_EQ(access(Fifo(epoch + 1).c_str(), F_OK), 0);
    const FedEpoch fed = WaitForFed(epoch + 1);
    EXPECT_EQ(fed.epoch, epoch);
    EXPECT_TRUE(fed.whole());
    EXPECT_EQ(fed.bytes, 9u);
  }
  feeder->reset();
  EXPECT_NE(access(Fifo(5).c_str(), F_OK), 0);
}

TEST_F(PipeFeederTest, AReaderThatClosesEarlyGetsTheNextEpoch) {
  for (int i = 0; i < 20; ++i) Put(fmt::format("p/{:02}", i), std::string(1 << 20, static_cast<char>('a' + i)));
  Find("");
  auto feeder = Make();
  ASSERT_TRUE(feeder.ok()) << feeder.status();
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    {
      std::ifstream file(Fifo(epoch), std::ios::binary);
      std::string begin(1000, 0);
      file.read(begin.data(), 1000);
      EXPECT_EQ(begin, std::string(1000, 'a'));
    }
    const FedEpoch fed = WaitForFed(epoch + 1);
    EXPECT_FALSE(fed.whole());
    EXPECT_EQ(fed.of, 20u);
    EXPECT_LT(fed.bytes, uint64_t{20} << 20);
  }
  EXPECT_EQ(Read(3).size(), size_t{20} << 20);
}

TEST_F(PipeFeederTest, EndsWithoutAReaderAndWithOneThatDoesNotRead) {
  Put("p/a", std::string(8 << 20, 'a'));
  Find("");
  ASSERT_TRUE(Make().ok());  // and is destroyed
  auto feeder = Make();
  ASSERT_TRUE(feeder.ok()) << feeder.status();
  const UniqueFd reader(open(Fifo(0).c_str(), O_RDONLY | O_CLOEXEC));
  char byte = 0;
  ASSERT_EQ(read(reader.get(), &byte, 1), 1);
  feeder->reset();
  EXPECT_TRUE(fed_.empty());
}

TEST_F(PipeFeederTest, ShuffledEpochsAreOrdersOfTheirOwn) {
  std::string all;
  for (int i = 0; i < 26; ++i) {
    Put(fmt::format("p/{:02}", i), std::string(1, static_cast<char>('a' + i)));
    all += static_cast<char>('a' + i);
  }
  Find(",shuffle-seed=7");
  std::vector<std::string> epochs;
  {
    auto feeder = Make();
    for (uint64_t epoch = 0; epoch < 3; ++epoch) epochs.push_back(Read(epoch));
  }
  for (std::string epoch : epochs) {
    EXPECT_NE(epoch, all);
    std::ranges::sort(epoch);
    EXPECT_EQ(epoch, all);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  {
    auto feeder = Make(0, 1, 3);  // as after a restart
    EXPECT_EQ(Read(1), epochs[1]);
    EXPECT_EQ(Read(2), epochs[2]);
  }
  // Every host gets its part of the same order, another one in each epoch.
  Find(",shuffle-seed=7,distribution=ShardedByS3Key");
  for (const uint64_t world : {2, 4}) {
    for (uint64_t rank = 0; rank < world; ++rank) {
      auto feeder = Make(rank, world);
      for (uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::string expected;
        for (size_t i = rank; i < all.size(); i += world) expected += epochs[epoch][i];
        EXPECT_EQ(Read(epoch), expected);
      }
    }
  }
  Find(",shuffle-seed=8");
  auto feeder = Make();
  EXPECT_NE(Read(0), epochs[0]);
}

TEST_F(PipeFeederTest, ADamagedChannelIsNoEndOfAnEpoch) {
  Put("p/a", "12");
  Put("p/b", "not gzip");
  Find(",compression=Gzip");
  auto feeder = Make();
  ASSERT_TRUE(feeder.ok()) << feeder.status();
  const UniqueFd reader(open(Fifo(0).c_str(), O_RDONLY | O_CLOEXEC));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !failure_.ok(); });
  EXPECT_TRUE(absl::IsDataLoss(failure_)) << failure_;
  EXPECT_THAT(failure_.message(), HasSubstr("mem://data/p/a"));
  ASSERT_EQ(fcntl(reader.get(), F_SETFL, O_NONBLOCK), 0);
  char byte = 0;
  EXPECT_EQ(read(reader.get(), &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);  // at its end it would be 0
}

TEST_F(PipeFeederTest, AnObjectThatWasReplacedIsAnError) {
  Put("p/a", "12");
  Find("");
  Put("p/a", "34");
  auto feeder = Make();
  const UniqueFd reader(open(Fifo(0).c_str(), O_RDONLY | O_CLOEXEC));
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !failure_.ok(); });
  EXPECT_TRUE(absl::IsFailedPrecondition(failure_)) << failure_;
}

TEST_F(PipeFeederTest, FilesOfOthersStay) {
  Put("p/a", "12");
  Find("");
  std::ofstream(Fifo(0)) << "mine";
  EXPECT_TRUE(absl::IsFailedPrecondition(Make().status()));
  RemoveStalePipes(folder_ / "train");
  EXPECT_EQ(Read(0), "mine");
  for (const char* name : {"train_1", "train_x", "training_1", "train_"})
    ASSERT_EQ(mkfifo((folder_ / name).c_str(), 0600), 0);
  std::ofstream(folder_ / ".train-pipe_mode-state") << "1";
  RemoveStalePipes(folder_ / "train");
  for (const auto& [name, stays] : std::map<std::string, bool>{{"train_0", true},
                                                               {"train_1", false},
                                                               {"train_x", true},
                                                               {"training_1", true},
                                                               {"train_", true},
                                                               {".train-pipe_mode-state", false}}) {
    EXPECT_EQ(access((folder_ / name).c_str(), F_OK) == 0, stays) << name;
  }
}

}  // namespace
}  // namespace millrace
