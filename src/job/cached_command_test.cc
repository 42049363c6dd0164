#include "job/cached_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Provides a command and a cache that do what the test says.
class CachedCommandTest : public ::testing::Test {
 protected:
  bool prepared_ = false;
  bool done_ = false;
  bool begun_ = false;
  bool stopped_ = false;
  std::optional<bool> finished_;
  std::vector<int> signals_;
  CachedCommand command_{{.begin = [this] { begun_ = true; },
                          .signal = [this](int signal) { signals_.push_back(signal); },
                          .prepared = [this] { return prepared_; },
                          .finish = [this](bool succeeded) { finished_ = succeeded; },
                          .stop = [this] { stopped_ = true; },
                          .done = [this] { return done_; }}};
};

TEST_F(CachedCommandTest, BeginsWhenTheCacheIsThereAndEndsWhenItIsPublished) {
  EXPECT_EQ(command_.Step({}, {}), std::nullopt);
  EXPECT_FALSE(begun_);
  EXPECT_EQ(command_.Step(SIGUSR1, {}), std::nullopt);
  prepared_ = true;
  EXPECT_EQ(command_.Step({}, {}), std::nullopt);
  EXPECT_TRUE(begun_);
  EXPECT_THAT(signals_, ElementsAre(SIGUSR1)) << "it comes late";
  EXPECT_EQ(command_.Step({}, 0), std::nullopt);
  EXPECT_EQ(finished_, true);
  done_ = true;
  EXPECT_EQ(command_.Step({}, 0), 0);
}

TEST_F(CachedCommandTest, ASignalBeforeTheCommandMeansNoCommand) {
  EXPECT_EQ(command_.Step(SIGTERM, {}), std::nullopt);
  EXPECT_TRUE(stopped_);
  prepared_ = done_ = true;
  EXPECT_EQ(command_.Step({}, {}), 128 + SIGTERM);
  EXPECT_FALSE(begun_);
}

TEST_F(CachedCommandTest, ASignalIsForTheCommandWhileItRuns) {
  prepared_ = true;
  EXPECT_EQ(command_.Step({}, {}), std::nullopt);
  EXPECT_EQ(command_.Step(SIGTERM, {}), std::nullopt);
  EXPECT_THAT(signals_, ElementsAre(SIGTERM));
  EXPECT_FALSE(stopped_);
  EXPECT_EQ(command_.Step({}, 7), std::nullopt);
  EXPECT_EQ(finished_, false);
  EXPECT_EQ(command_.Step(SIGINT, 7), std::nullopt);
  EXPECT_TRUE(stopped_) << "nothing more is published";
  done_ = true;
  EXPECT_EQ(command_.Step({}, 7), 7);
}

TEST(CachedCommand, WithoutACacheItBeginsAndEndsAtOnce) {
  bool begun = false;
  CachedCommand::Actions actions = CachedCommand::WithoutCache();
  actions.begin = [&begun] { begun = true; };
  CachedCommand command(actions);
  EXPECT_EQ(command.Step({}, {}), std::nullopt);
  EXPECT_TRUE(begun);
  EXPECT_EQ(command.Step({}, 3), 3);
  CachedCommand stopped(CachedCommand::WithoutCache());
  EXPECT_EQ(stopped.Step(SIGTERM, {}), 128 + SIGTERM);
}

}  // namespace
}  // namespace millrace
