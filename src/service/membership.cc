#include "service/membership.h"

#include <fmt/format.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>

#include <utility>

#include "base/log.h"
#include "base/unique_fd.h"

namespace millrace {

namespace {

constexpr std::chrono::seconds kLookEvery{2};
constexpr int64_t kLeaseSeconds = 10;
constexpr std::chrono::seconds kRenewEvery{3};
constexpr std::chrono::seconds kRegisterAgainAfter{1};

}  // namespace

Membership::Membership(std::unique_ptr<WorkerFinder> finder, Placement& placement)
    : finder_(std::move(finder)), placement_(placement), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "membership");
}

Membership::~Membership() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

void Membership::Run() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kLookEvery, [this] { return stopping_; })) {
    lock.unlock();
    // Places that do not change were found before, and errors of others are logged there.
    const absl::StatusOr<std::vector<std::string>> workers = finder_->Find();
    if (workers.ok()) placement_.SetMembers(*workers);
    lock.lock();
  }
}

// ---- Registration

std::string Registration::AddressTowards(const HttpEndpoint& etcd, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(etcd.host.c_str(), std::to_string(etcd.port).c_str(), &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    // Nothing is sent: the kernel only chooses the way.
    const UniqueFd fd(socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd || connect(fd.get(), at->ai_addr, at->ai_addrlen) != 0) continue;
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    char text[NI_MAXHOST];
    if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    return own.ss_family == AF_INET6 ? fmt::format("[{}]:{}", text, port) : fmt::format("{}:{}", text, port);
  }
  return "";
}

absl::StatusOr<std::unique_ptr<Registration>> Registration::Begin(Runtime& runtime, const WorkerPlace& place,
                                                                  std::string address) {
  ASSIGN_OR_RETURN(EtcdAccess access, EtcdAccess::FromEnvironment());
  return std::unique_ptr<Registration>(new Registration(runtime, place, std::move(access), std::move(address)));
}

Registration::Registration(Runtime& runtime, const WorkerPlace& place, EtcdAccess access, std::string address)
    : place_(place.text),
      key_(EtcdPrefix(place) + address),
      address_(std::move(address)),
      etcd_(runtime, place.etcd, std::move(access)),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "registration");
}

Registration::~Registration() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  thread_.join();
}

absl::Status Registration::Renew() {
  if (lease_ != 0) {
    const absl::Status status = etcd_.KeepAlive(lease_);
    if (!absl::IsNotFound(status)) return status;
    lease_ = 0;  // it was cut off for longer than the lease, or etcd has lost its data
  }
  ASSIGN_OR_RETURN(const int64_t lease, etcd_.Grant(kLeaseSeconds));
  RETURN_IF_ERROR(etcd_.Put(key_, address_, lease));
  lease_ = lease;
  return absl::OkStatus();
}

void Registration::Run() {
  bool failing = false;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const absl::Status status = Renew();
    if (!status.ok() && !failing) {
      Log(LogLevel::kWarning, "service",
          fmt::format("{}: {}; trainers do not find this worker there until etcd answers", place_,
                      ToStd(status.message())));
    }
    failing = !status.ok();
    lock.lock();
    wake_.wait_for(lock, failing ? kRegisterAgainAfter : kRenewEvery, [this] { return stopping_; });
  }
  // Else it ends by itself.
  if (lease_ != 0) (void)etcd_.Revoke(lease_);
}

}  // namespace millrace
