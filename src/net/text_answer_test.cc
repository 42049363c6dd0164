#include "net/text_answer.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "net/testing/http_client_fixture.h"

namespace millrace {
namespace {

class TextAnswerTest : public HttpClientTest {
 protected:
  static TextRequest To(const ScriptedServer& server) {
    return {.endpoint = {"127.0.0.1", server.port(), false}, .head = {"GET", "/path?query", {}}, .max_text = 100};
  }
  TextAnswer Ask(HttpClient& client, TextRequest request) {
    return AskForText(client, loops_.at(0), std::move(request)).get();
  }
};

TEST_F(TextAnswerTest, HasHeadAndText) {
  ScriptedServer server(
      Answer("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nDate: Tue, 14 Nov 2023 22:13:25 GMT\r\nX-Name: "
             "value\r\n\r\ngone"));
  const TextAnswer answer = Ask(Client(), To(server));
  EXPECT_EQ(answer.head.status, 404);
  EXPECT_EQ(answer.head.headers.Find("x-name"), "value");
  EXPECT_EQ(answer.date(), absl::FromUnixSeconds(1'700'000'005));
  EXPECT_EQ(answer.problem(), "");
  EXPECT_EQ(answer.result.text, "gone");
}

TEST_F(TextAnswerTest, SendsHostAndBody) {
  std::promise<std::string> got;
  ScriptedServer server([&got](ScriptedConnection& connection) {
    got.set_value(connection.ReadRequest());
    connection.Send(WithLength("ok"));
  });
  TextRequest request = To(server);
  request.head.method = "POST";
  request.body = "question";
  EXPECT_EQ(Ask(Client(), std::move(request)).result.text, "ok");
  const std::string sent = got.get_future().get();
  EXPECT_TRUE(sent.starts_with("POST /path?query HTTP/1.1\r\n")) << sent;
  EXPECT_NE(sent.find("Host: 127.0.0.1:" + std::to_string(server.port()) + "\r\n"), sent.npos) << sent;
  EXPECT_NE(sent.find("User-Agent: millrace\r\n"), sent.npos) << sent;
  EXPECT_NE(sent.find("Content-Length: 8\r\n"), sent.npos) << sent;
}

TEST_F(TextAnswerTest, SaysWhatWentWrong) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.ReadRequest(); });
  const TextAnswer none = Ask(Client(), To(server));
  EXPECT_EQ(none.head.status, 0);
  EXPECT_EQ(none.date(), std::nullopt);
  EXPECT_NE(none.problem(), "");
  ScriptedServer large(Answer(WithLength(std::string(101, 'x'))));
  EXPECT_EQ(Ask(*client_, To(large)).result.error, HttpErrorKind::kTooLarge);
}

TEST_F(TextAnswerTest, TheLimitHoldsUntilTheEndOfTheText) {
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    connection.WaitForClose();
  });
  TextRequest request = To(server);
  request.limit = std::chrono::milliseconds(50);
  const TextAnswer answer = Ask(Client(), std::move(request));
  EXPECT_EQ(answer.result.error, HttpErrorKind::kTimeout);
  EXPECT_EQ(answer.problem(), "no answer in time");
}

TEST_F(TextAnswerTest, AKeptConnectionThatHadEndedIsReplaced) {
  // Answers one request on each connection, which is closed when the second request is there.
  ScriptedServer server([](ScriptedConnection& connection) {
    connection.ReadRequest();
    connection.Send(WithLength("ok"));
    connection.ReadRequest();
  });
  HttpClient& client = Client();
  TextRequest request = To(server);
  request.fresh_connection = false;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(client, request).result.text, "ok") << i;
  EXPECT_EQ(server.connections(), 3);
}

TEST_F(TextAnswerTest, ManyAtATime) {
  ScriptedServer server(Answer(WithLength("hello")));
  HttpClient& client = Client();
  std::vector<std::future<TextAnswer>> answers;
  for (int i = 0; i < 50; ++i) answers.push_back(AskForText(client, loops_.at(0), To(server)));
  for (std::future<TextAnswer>& answer : answers) EXPECT_EQ(answer.get().result.text, "hello");
}

TEST_F(TextAnswerTest, AClientThatEndsAnswersAll) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.WaitForClose(); });
  std::future<TextAnswer> answer = AskForText(Client(), loops_.at(0), To(server));
  std::promise<void> begun;
  loops_.at(0).Post([&begun] { begun.set_value(); });
  begun.get_future().wait();
  client_.reset();
  EXPECT_EQ(answer.get().result.error, HttpErrorKind::kCancelled);
}

TEST_F(TextAnswerTest, ACallCanBeCancelled) {
  ScriptedServer server([](ScriptedConnection& connection) { connection.WaitForClose(); });
  HttpClient& client = Client();
  std::promise<TextAnswer> done;
  RunAndWait(loops_.at(0), [&] {
    const std::shared_ptr<HttpCall> call =
        BeginText(client, loops_.at(0), To(server), [&done](TextAnswer answer) { done.set_value(std::move(answer)); });
    call->Cancel();
  });
  EXPECT_EQ(done.get_future().get().result.error, HttpErrorKind::kCancelled);
}

}  // namespace
}  // namespace millrace
