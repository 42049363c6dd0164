#include "checkpoints_handle.h"

#include <fmt/format.h>
#include <pybind11/stl.h>

#include <functional>
#include <stop_token>
#include <string>

#include "arguments.h"
#include "buffer_view.h"
#include "errors.h"
#include "interruptible.h"

namespace millrace::python {

namespace {

// Runs `work` on another thread while this one looks after Python's signals.
absl::Status RunWithStop(const std::function<absl::Status(const std::stop_token&)>& work) {
  absl::Status status;
  RunInterruptibly(py::none(), [&](const std::stop_token& stop, const ProgressFn&) { status = work(stop); });
  return status;
}

std::shared_ptr<Checkpoints> OpenCheckpoints(Process& process, const std::string& uri) {
  const Location location = ValueOrThrow(process.stores.Open(uri));
  return std::make_shared<Checkpoints>(location, process.runtime.memory());
}

}  // namespace

CheckpointsHandle::CheckpointsHandle(const std::string& uri)
    : process_(CurrentProcess()), checkpoints_(OpenCheckpoints(*process_, uri)) {}

uint64_t CheckpointsHandle::Claim() {
  CheckOwnProcess();
  ThrowIfError(RunWithStop([&](const std::stop_token& stop) {
    const std::lock_guard lock(writing_);
    return checkpoints_->Claim(stop);
  }));
  return checkpoints_->epoch();
}

void CheckpointsHandle::Save(const py::int_& step,
                             const std::vector<std::pair<std::string, std::vector<py::buffer>>>& shards,
                             const py::int_& keep) {
  CheckOwnProcess();
  const uint64_t step_number = ToNatural("step", step);
  Checkpoints::SaveOptions options{.keep = ToNatural("keep", keep), .stop = {}};
  std::vector<BufferView> views;
  std::vector<ShardBytes> sources;
  for (const auto& [name, objects] : shards) {
    ShardBytes& source = sources.emplace_back();
    source.name = name;
    for (const py::buffer& object : objects) source.spans.push_back(views.emplace_back(object, PyBUF_SIMPLE).span());
  }
  ThrowIfError(RunWithStop([&](const std::stop_token& stop) {
    const std::lock_guard lock(writing_);
    options.stop = stop;
    return checkpoints_->Save(step_number, sources, options).status();
  }));
}

std::vector<uint64_t> CheckpointsHandle::Steps() const {
  CheckOwnProcess();
  std::vector<uint64_t> steps;
  ThrowIfError(RunWithStop([&](const std::stop_token& stop) -> absl::Status {
    ASSIGN_OR_RETURN(const auto catalog, checkpoints_->ReadCatalog(stop));
    if (!catalog) return absl::OkStatus();
    for (const CheckpointEntry& entry : catalog->entries) steps.push_back(entry.step);
    return absl::OkStatus();
  }));
  return steps;
}

std::shared_ptr<CheckpointHandle> CheckpointsHandle::Find(const std::optional<py::int_>& step) const {
  CheckOwnProcess();
  const std::optional<uint64_t> wanted = step ? std::optional(ToNatural("step", *step)) : std::nullopt;
  CheckpointManifest manifest;
  ThrowIfError(RunWithStop([&](const std::stop_token& stop) -> absl::Status {
    ASSIGN_OR_RETURN(const CheckpointEntry entry, checkpoints_->Find(wanted, stop));
    ASSIGN_OR_RETURN(manifest, checkpoints_->ReadManifest(entry));
    return absl::OkStatus();
  }));
  return std::make_shared<CheckpointHandle>(maker_, process_, checkpoints_, std::move(manifest));
}

std::vector<std::pair<std::string, uint64_t>> CheckpointHandle::Shards() const {
  std::vector<std::pair<std::string, uint64_t>> shards;
  for (const CheckpointShard& shard : manifest_.shards) shards.emplace_back(shard.name, shard.bytes);
  return shards;
}

void CheckpointHandle::Read(const std::vector<py::buffer>& into) const {
  CheckOwnProcess(maker_, "Checkpoints");
  if (into.size() != manifest_.shards.size()) throw py::value_error("one buffer a shard is needed");
  std::vector<BufferView> views;
  std::vector<MutableByteSpan> spans;
  for (size_t i = 0; i < into.size(); ++i) {
    spans.push_back(views.emplace_back(into[i], PyBUF_WRITABLE).span());
    if (spans.back().size() != manifest_.shards[i].bytes) throw py::value_error("a buffer has not the shard's size");
  }
  ThrowIfError(RunWithStop([&](const std::stop_token& stop) { return checkpoints_->Read(manifest_, spans, stop); }));
}

void BindCheckpoints(py::module_& module) {
  py::class_<CheckpointHandle, std::shared_ptr<CheckpointHandle>>(module, "Checkpoint")
      .def_property_readonly("step", &CheckpointHandle::step)
      .def_property_readonly("shards", &CheckpointHandle::Shards)
      .def("read", &CheckpointHandle::Read, py::arg("into"));
  using Handle = CheckpointsHandle;
  py::class_<Handle>(module, "Checkpoints")
      .def(py::init<const std::string&>(), py::arg("uri"))
      .def_property_readonly("uri", [](const Handle& self) { return ToPyText(self.uri()); })
      .def("claim", &Handle::Claim)
      .def("save", &Handle::Save, py::arg("step"), py::arg("shards"), py::arg("keep"))
      .def("steps", &Handle::Steps)
      .def("find", &Handle::Find, py::arg("step"));
}

}  // namespace millrace::python
