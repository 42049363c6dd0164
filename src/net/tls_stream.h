#pragma once

#include <openssl/types.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/system/error_code.hpp>
#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"

// This is private to src/net.

namespace millrace {

/// Implements the client's side of TLS over a connected socket, with the interface of an Asio stream as far as
/// HttpConnection needs it. Asio's own copies each byte twice more, between the socket and OpenSSL.
///
/// One read and one write may be pending at a time; handlers never run within the call that starts them. The stream
/// outlives its pending operations, which end when the socket is closed. On the loop's thread only.
class TlsStream {
 public:
  using Error = boost::system::error_code;
  using Socket = boost::asio::basic_stream_socket<boost::asio::ip::tcp, boost::asio::io_context::executor_type>;
  using Parts = std::array<boost::asio::const_buffer, 2>;
  using Handler = absl::AnyInvocable<void(const Error&, size_t)>;

  /// The peer must show a certificate for `host`, a name or an address.
  TlsStream(Socket socket, SSL_CTX* context, const std::string& host);
  ~TlsStream();

  Socket& next_layer() { return socket_; }
  SSL* native_handle() { return ssl_.get(); }

  void async_handshake(Handler done);  // 0 bytes
  /// The end of the stream is eof when the peer said so, and stream_truncated when it only hung up.
  void async_read_some(boost::asio::mutable_buffer into, Handler done);
  /// The parts must not be empty.
  void async_write_some(const Parts& from, Handler done);

 private:
  struct Free {
    void operator()(SSL* ssl) const;
  };

  void Handshake(Handler done);
  void Read(boost::asio::mutable_buffer into, Handler done);
  void Write(const Parts& from, Handler done);
  /// Call this after `result` of OpenSSL. It calls `again` with `done` when the socket is ready, or `done` with the
  /// error.
  template <typename Again>
  void Await(int result, Handler done, Again again);
  void Later(Handler done, const Error& error, size_t bytes);

  Socket socket_;
  std::unique_ptr<SSL, Free> ssl_;
  Error read_error_;  // met after bytes that were handed out first
};

}  // namespace millrace
