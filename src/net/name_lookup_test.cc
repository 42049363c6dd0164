#include "net/name_lookup.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <memory>
#include <optional>

namespace millrace {
namespace {

using Found = std::pair<NameLookup::Error, NameLookup::Addresses>;

/// Returns the answer of one lookup on a loop of its own.
Found LookUp(const std::string& host, uint16_t port, NameLookup::Find find = nullptr) {
  EventLoop loop("test");
  std::optional<NameLookup> lookup;
  std::promise<Found> answer;
  RunAndWait(loop, [&] {
    find ? lookup.emplace(loop, std::move(find)) : lookup.emplace(loop);
    lookup->Start(host, port, [&](NameLookup::Error error, const NameLookup::Addresses& found) {
      EXPECT_TRUE(loop.InLoop());
      answer.set_value({error, found});
    });
  });
  Found found = answer.get_future().get();
  RunAndWait(loop, [&] { lookup.reset(); });
  return found;
}

TEST(NameLookup, FindsTheAddressesOfAHost) {
  const auto [error, found] = LookUp("localhost", 81);
  ASSERT_FALSE(error) << error.message();
  ASSERT_FALSE(found.empty());
  for (const auto& endpoint : found) {
    EXPECT_TRUE(endpoint.address().is_loopback());
    EXPECT_EQ(endpoint.port(), 81);
  }
}

TEST(NameLookup, SaysWhatIsWrong) {
  // No name server is asked for a name of this length: some know all names, others answer nobody.
  const auto [error, found] = LookUp(std::string(300, 'a'), 81);
  EXPECT_TRUE(error);
  EXPECT_TRUE(found.empty());
}

TEST(NameLookup, AnExceptionIsAnAnswer) {
  const auto fails = [](const std::string&, uint16_t, NameLookup::Error&) -> NameLookup::Addresses {
    throw std::bad_alloc();
  };
  EXPECT_TRUE(LookUp("a", 81, fails).first);
}

TEST(NameLookup, NobodyWaitsForANameServerThatIsSilent) {
  auto asked = std::make_shared<std::latch>(1);
  auto answers = std::make_shared<std::latch>(1);
  std::promise<void> ended;
  {
    EventLoop loop("test");
    std::optional<NameLookup> lookup;
    auto last = std::shared_ptr<void>(nullptr, [&](void*) { ended.set_value(); });
    RunAndWait(loop, [&] {
      lookup.emplace(loop, [asked, answers, last](const std::string&, uint16_t, NameLookup::Error&) {
        asked->count_down();
        answers->wait();
        return NameLookup::Addresses();
      });
      lookup->Start("a", 81, [](NameLookup::Error, const NameLookup::Addresses&) { FAIL() << "it was cancelled"; });
    });
    asked->wait();
    RunAndWait(loop, [&] { lookup.reset(); });
  }
  answers->count_down();
  ended.get_future().wait();  // the thread has ended, and has used nothing of the loop
}

}  // namespace
}  // namespace millrace
