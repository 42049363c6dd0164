#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/commands.h"
#include "cli/json_text.h"
#include "diagnose/doctor.h"

namespace millrace::cli {

/// Adds `millrace doctor host`, below `doctor`.
void AddDoctorHost(Command doctor);

/// Returns the examination by `millrace doctor host` without other options. True: the machine is fit.
absl::StatusOr<bool> ExamineThisHost(bool json);

/// "FAILED disk: ... Remedy: ...", with its end.
std::string CheckText(const HealthCheck& check);
JsonArray ChecksToJson(const std::vector<HealthCheck>& found);

}  // namespace millrace::cli
