#include "service/worker_places.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/file_text.h"
#include "base/log.h"
#include "base/process.h"
#include "service/host_list.h"
#include "service/worker_calls.h"

namespace millrace {

namespace {

struct PlacePrefix {
  std::string_view prefix;
  WorkerPlace::Kind kind;
};
constexpr PlacePrefix kPlacePrefixes[] = {{"dns:", WorkerPlace::Kind::kDns},
                                          {"slurm:", WorkerPlace::Kind::kSlurm},
                                          {"sagemaker:", WorkerPlace::Kind::kSageMaker}};

absl::Status NoPlace(std::string_view text, std::string_view form) {
  return absl::InvalidArgumentError(fmt::format("\"{}\" does not say where workers are; write {}", text, form));
}

absl::StatusOr<std::string> ReadResourceConfig() {
  const std::string folder = EnvironmentValue("SM_INPUT_CONFIG_DIR");
  const std::string path = (folder.empty() ? "/opt/ml/input/config" : folder) + "/resourceconfig.json";
  absl::StatusOr<std::string> text = ReadFileText(path);
  if (text.ok()) return text;
  return absl::NotFoundError(fmt::format("{} cannot be read; is this a training job of SageMaker?", path));
}

// Returns every address that a name has.
absl::StatusOr<std::vector<std::string>> Resolve(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (error == EAI_NONAME || error == EAI_NODATA) return std::vector<std::string>();  // no worker has come up yet
  if (error != 0) return absl::UnavailableError(fmt::format("the name {}: {}", name, gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
    addresses.emplace_back(text);
  }
  return addresses;
}

absl::StatusOr<std::vector<std::string>> WorkersAt(const WorkerPlace& place) {
  absl::StatusOr<std::vector<std::string>> hosts;
  switch (place.kind) {
    case WorkerPlace::Kind::kAddress:
      hosts = std::vector<std::string>{place.name};
      break;
    case WorkerPlace::Kind::kDns:
      hosts = Resolve(place.name);
      break;
    case WorkerPlace::Kind::kSlurm:
      hosts = ExpandHostList(place.name);
      break;
    case WorkerPlace::Kind::kSageMaker: {
      ASSIGN_OR_RETURN(const std::string text, ReadResourceConfig());
      hosts = HostsOfGroup(text, place.name);
      break;
    }
  }
  if (!hosts.ok()) return hosts;
  for (std::string& host : *hosts) host = HostAndPort(host, place.port);
  return hosts;
}

}  // namespace

absl::StatusOr<WorkerPlace> ParseWorkerPlace(std::string_view text) {
  WorkerPlace place{.text = std::string(text)};
  std::string_view rest = text;
  for (const PlacePrefix& each : kPlacePrefixes) {
    if (!text.starts_with(each.prefix)) continue;
    place.kind = each.kind;
    rest.remove_prefix(each.prefix.size());
    break;
  }
  if (place.kind == WorkerPlace::Kind::kAddress || place.kind == WorkerPlace::Kind::kDns) {
    absl::StatusOr<HttpEndpoint> endpoint = ParseWorkerAddress(rest);
    if (!endpoint.ok())
      return place.kind == WorkerPlace::Kind::kDns ? NoPlace(text, "dns:NAME:PORT") : endpoint.status();
    place.name = std::move(endpoint->host);
    place.port = endpoint->port;
    return place;
  }
  const bool is_slurm = place.kind == WorkerPlace::Kind::kSlurm;
  const std::string_view form =
      is_slurm ? "slurm:NODES:PORT, for example slurm:node[1-4]:7070" : "sagemaker:GROUP:PORT";
  const size_t colon = rest.rfind(':');
  const std::string_view port = colon == rest.npos ? std::string_view() : rest.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), place.port);
  place.name = rest.substr(0, colon == rest.npos ? 0 : colon);
  if (error != std::errc() || end != port.data() + port.size() || port.empty() || place.name.empty()) {
    return NoPlace(text, form);
  }
  if (is_slurm) RETURN_IF_ERROR(ExpandHostList(place.name).status());
  return place;
}

absl::StatusOr<std::vector<std::string>> HostsOfGroup(std::string_view resource_config, const std::string& group) {
  const nlohmann::json config = nlohmann::json::parse(resource_config, nullptr, false);
  const auto groups = config.is_object() ? config.find("instance_groups") : config.end();
  if (!config.is_object() || (groups != config.end() && !groups->is_array())) {
    return absl::InvalidArgumentError("resourceconfig.json is not what SageMaker writes");
  }
  std::string names;
  if (groups != config.end()) {
    for (const nlohmann::json& each : *groups) {
      if (!each.is_object() || !each.contains("instance_group_name") || !each["instance_group_name"].is_string())
        continue;
      const std::string& name = each["instance_group_name"].get_ref<const std::string&>();
      names += (names.empty() ? "" : ", ") + name;
      if (name != group || !each.contains("hosts") || !each["hosts"].is_array()) continue;
      std::vector<std::string> hosts;
      for (const nlohmann::json& host : each["hosts"]) {
        if (host.is_string()) hosts.push_back(host.get<std::string>());
      }
      return hosts;
    }
  }
  return absl::NotFoundError(fmt::format("resourceconfig.json has no instance group \"{}\" (it has {})", group,
                                         names.empty() ? "none" : names));
}

WorkerFinder::WorkerFinder(std::vector<WorkerPlace> places) {
  for (WorkerPlace& place : places) entries_.push_back({.place = std::move(place)});
}

absl::StatusOr<std::vector<std::string>> WorkerFinder::Find() {
  std::vector<std::string> workers;
  std::set<std::string> seen;
  for (Entry& entry : entries_) {
    absl::StatusOr<std::vector<std::string>> found = WorkersAt(entry.place);
    if (!found.ok() && !entry.place.changes()) return Annotate(found.status(), entry.place.text);
    const bool failed_before = std::exchange(entry.failing, !found.ok());
    if (found.ok()) {
      entry.last = *std::move(found);
    } else if (!failed_before) {
      Log(LogLevel::kWarning, "service",
          fmt::format("{}: {}; the workers that were there last count until it answers", entry.place.text,
                      ToStd(found.status().message())));
    }
    for (const std::string& worker : entry.last) {
      if (seen.insert(worker).second) workers.push_back(worker);
    }
  }
  return workers;
}

bool WorkerFinder::changes() const {
  for (const Entry& entry : entries_) {
    if (entry.place.changes()) return true;
  }
  return false;
}

}  // namespace millrace
