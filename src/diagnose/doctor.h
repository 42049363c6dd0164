#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/network.h"
#include "diagnose/s3_settings.h"
#include "diagnose/store_speed.h"
#include "net/runtime.h"
#include "s3/address.h"
#include "s3/client.h"

namespace millrace {

/// Is one step on the way to the data.
struct HealthCheck {
  enum class Result { kOk, kFailed, kSkipped };
  std::string name;  // "dns"
  Result result = Result::kOk;
  std::string text;    // the finding; may hold bytes that the server chose
  std::string remedy;  // of kFailed
};

struct Diagnosis {
  std::vector<HealthCheck> checks;  // in the order of the steps
  std::vector<std::string> advice;  // sentences
  std::optional<StoreSpeed> speed;  // if anything could be read

  bool healthy() const;  // nothing failed
};

/// Finds out, step by step, why a bucket on S3 cannot be read or written, or how fast it can be read. It changes
/// nothing there unless CheckWrite is called, and its reports have no secrets. Blocking; not thread-safe.
class Doctor {
 public:
  /// `key` is a prefix or the key of an object, or empty. `on_check` is called with each step as soon as it is done, by
  /// the thread that calls the methods below.
  Doctor(std::string bucket, std::string key, std::function<void(const HealthCheck&)> on_check);

  /// Checks settings, name, connection, TLS, clock, permissions.
  void CheckAccess();

  /// Call it after CheckAccess. It writes a small object beside the key, and removes it.
  void CheckWrite();

  /// Call it after CheckAccess. It reads objects for some seconds, if any can be read.
  void MeasureSpeed(ReadProgress progress);

  const Diagnosis& diagnosis() const { return diagnosis_; }

 private:
  void Add(HealthCheck check);
  void Ok(std::string name, std::string text);
  void Failed(std::string name, std::string text, std::string remedy);
  void Skipped(std::string name, const std::string& why);

  void CheckSettings();
  void CheckNetwork();
  void CheckServer(const S3Address& address);
  bool SpeaksTls(const S3Address& address);
  void CheckClock(const ProbeAnswer& answer);
  void CheckPermissions();
  void CheckList();
  void CheckRead();
  std::string Remedy(const absl::Status& status, std::string_view permission) const;
  const S3Config& config() const { return *settings_.config; }

  const std::string bucket_;
  const std::string key_;
  const std::function<void(const HealthCheck&)> on_check_;
  const ExplainedSettings settings_;
  Runtime runtime_;
  std::unique_ptr<S3Client> client_;
  bool reached_ = false;             // the server answers
  bool readable_ = false;            // there is an object that can be read
  std::vector<ObjectInfo> objects_;  // that exist; the requested one is the first
  Diagnosis diagnosis_;
};

}  // namespace millrace
