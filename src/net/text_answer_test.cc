#include "net/text_answer.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "net/testing/http_client_fixture.h"

namespace millrace {
namespace {

using TextAnswerTest = HttpClientTest;

TEST_F(TextAnswerTest, HasStatusAndText) {
  ScriptedServer server(Answer("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone"));
  const TextAnswer answer = AskForText(Client(), loops_.at(0), Request(server), 100).get();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.result.error, HttpErrorKind::kNone);
  EXPECT_EQ(answer.result.text, "gone");
}

TEST_F(TextAnswerTest, SaysWhatWentWrong) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.ReadRequest(); });
  const TextAnswer none = AskForText(Client(), loops_.at(0), Request(server), 100).get();
  EXPECT_EQ(none.status, 0);
  EXPECT_NE(none.result.error, HttpErrorKind::kNone);
  ScriptedServer large(Answer(WithLength(std::string(101, 'x'))));
  EXPECT_EQ(AskForText(*client_, loops_.at(0), Request(large), 100).get().result.error, HttpErrorKind::kTooLarge);
}

TEST_F(TextAnswerTest, ManyAtATime) {
  ScriptedServer server(Answer(WithLength("hello")));
  HttpClient& client = Client();
  std::vector<std::future<TextAnswer>> answers;
  for (int i = 0; i < 50; ++i) answers.push_back(AskForText(client, loops_.at(0), Request(server), 100));
  for (std::future<TextAnswer>& answer : answers) EXPECT_EQ(answer.get().result.text, "hello");
}

TEST_F(TextAnswerTest, AClientThatEndsAnswersAll) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.WaitForClose(); });
  std::future<TextAnswer> answer = AskForText(Client(), loops_.at(0), Request(server), 100);
  std::promise<void> begun;
  loops_.at(0).Post([&begun] { begun.set_value(); });
  begun.get_future().wait();
  client_.reset();
  EXPECT_EQ(answer.get().result.error, HttpErrorKind::kCancelled);
}

}  // namespace
}  // namespace millrace
