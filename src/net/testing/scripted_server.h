#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "net/tls_identity.h"

namespace millrace {

/// This is one accepted connection of a ScriptedServer, used by its script with blocking calls.
class ScriptedConnection {
 public:
  /// Reads until a head has ended (and the body that its Content-Length announces). Returns it, or "" when the client
  /// closed.
  std::string ReadRequest();
  /// Reads at most `bytes`; "" at the end of the stream.
  std::string ReadSome(size_t bytes);
  void Send(std::string_view bytes);
  /// Ends the connection with RST instead of FIN.
  void Reset() { end_ = End::kReset; }
  /// Ends the connection with FIN, without the closing message of TLS.
  void Truncate() { end_ = End::kTruncate; }
  /// Returns the number of this connection, from 0 in order of arrival.
  int number() const { return number_; }
  /// Blocks until the client closes the connection or the server is destroyed.
  void WaitForClose();
  /// Waits so long for that. False: the connection is open, or the client has sent something.
  bool ClosesWithin(std::chrono::milliseconds limit);

 private:
  friend class ScriptedServer;
  enum class End { kClean, kTruncate, kReset };
  int fd_ = -1;
  void* ssl_ = nullptr;
  int number_ = 0;
  End end_ = End::kClean;
  std::string received_;
};

/// This server for tests accepts on a free port of 127.0.0.1 and runs `script` for each connection on a thread of its
/// own. When the script returns, the connection is closed. The destructor closes everything and joins.
class ScriptedServer {
 public:
  using Script = std::function<void(ScriptedConnection&)>;
  explicit ScriptedServer(Script script, const TlsIdentity* tls = nullptr);
  ~ScriptedServer();

  uint16_t port() const { return port_; }
  int connections() const { return accepted_.load(); }

 private:
  void Accept();
  void Serve(int fd, int number);

  const Script script_;
  void* tls_context_ = nullptr;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<int> accepted_{0};
  std::mutex mutex_;
  bool closing_ = false;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace millrace
