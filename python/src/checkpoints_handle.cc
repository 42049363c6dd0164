#include "checkpoints_handle.h"

#include <fmt/format.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <iterator>
#include <stop_token>
#include <string>

#include "arguments.h"
#include "bindings.h"
#include "buffer_view.h"
#include "checkpoint/copy_past_caches.h"
#include "errors.h"
#include "gil_release.h"
#include "interruptible.h"

namespace millrace::python {

namespace {

Retention ToRetention(const nb::int_& keep, const nb::int_& keep_every, std::vector<uint64_t> keep_steps) {
  return {.keep = ToNatural("keep", keep),
          .keep_every = ToNatural("keep_every", keep_every),
          .keep_steps = std::move(keep_steps)};
}

/// Has a Python object copy some of its bytes. The error is that of Python, as text.
absl::Status CopyFromPython(PyObject* piece, uint64_t offset, MutableByteSpan into) {
  const nb::gil_scoped_acquire gil;
  try {
    const auto memory = nb::steal(PyMemoryView_FromMemory(reinterpret_cast<char*>(into.data()),
                                                          static_cast<Py_ssize_t>(into.size()), PyBUF_WRITE));
    if (!memory.is_valid()) throw nb::python_error();
    nb::handle(piece).attr("copy_to")(offset, memory);
    return absl::OkStatus();
  } catch (const nb::python_error& error) {
    return absl::InternalError(
        fmt::format("a tensor cannot be copied to the memory of the host: {}", DescribeError(error)));
  }
}

/// Holds the memory of shards, which stays where it is while this lives.
struct ShardViews {
  explicit ShardViews(const CheckpointsHandle::Shards& shards) {
    for (const auto& [name, objects] : shards) {
      ShardBytes& source = sources.emplace_back();
      source.name = name;
      for (const nb::object& object : objects) {
        if (PyObject_CheckBuffer(object.ptr()) != 0) {
          source.spans.emplace_back(views.emplace_back(object, PyBUF_SIMPLE).span());
          continue;
        }
        const auto size = nb::cast<uint64_t>(object.attr("size"));
        // The caller's `shards` keep it.
        source.spans.emplace_back(size, [piece = object.ptr()](uint64_t offset, MutableByteSpan into) {
          return CopyFromPython(piece, offset, into);
        });
      }
    }
  }
  std::vector<BufferView> views;
  std::vector<ShardBytes> sources;
};

void CopyBuffer(nb::handle into, nb::handle from) {
  const BufferView to(into, PyBUF_WRITABLE);
  const BufferView source(from, PyBUF_SIMPLE);
  if (to.span().size() != source.span().size()) throw nb::value_error("the buffers have not one size");
  const GilRelease unlocked;
  CopyPastCaches(to.span(), source.span());
}

std::shared_ptr<Checkpoints> OpenCheckpoints(Process& process, const std::string& uri) {
  const Location location = ValueOrThrow(process.stores.Open(uri));
  return std::make_shared<Checkpoints>(location, process.runtime.memory());
}

}  // namespace

CheckpointsHandle::CheckpointsHandle(const std::string& uri)
    : process_(CurrentProcess()), checkpoints_(OpenCheckpoints(*process_, uri)) {
  process_->checkpoints.Opened(this->uri());
}

uint64_t CheckpointsHandle::Claim() {
  CheckOwnProcess();
  RunInterruptibly([&](const std::stop_token& stop) {
    const std::lock_guard lock(writing_);
    return checkpoints_->Claim(stop);
  });
  process_->checkpoints.Claimed(uri());
  return checkpoints_->epoch();
}

void CheckpointsHandle::Save(const nb::int_& step, const Shards& shards, const nb::int_& keep,
                             const nb::int_& keep_every, std::vector<uint64_t> keep_steps) {
  CheckOwnProcess();
  const uint64_t step_number = ToNatural("step", step);
  Checkpoints::SaveOptions options{.retention = ToRetention(keep, keep_every, std::move(keep_steps)), .stop = {}};
  const ShardViews views(shards);
  CheckpointCounts::Save count(process_->checkpoints, uri());
  RunInterruptibly([&](const std::stop_token& stop) {
    const std::lock_guard lock(writing_);
    options.stop = stop;
    return checkpoints_->Save(step_number, views.sources, options).status();
  });
  count.Committed();
}

std::shared_ptr<CheckpointSaveHandle> CheckpointsHandle::Begin(const nb::int_& step, const nb::int_& keep,
                                                               const nb::int_& keep_every,
                                                               std::vector<uint64_t> keep_steps) {
  CheckOwnProcess();
  const uint64_t step_number = ToNatural("step", step);
  Checkpoints::SaveOptions options{.retention = ToRetention(keep, keep_every, std::move(keep_steps)), .stop = {}};
  ProcessLocal<CheckpointCounts::Save> count(new CheckpointCounts::Save(process_->checkpoints, uri()));
  SaveProtocol save = RunInterruptibly([&](const std::stop_token& stop) {
    const std::lock_guard lock(writing_);
    options.stop = stop;
    return checkpoints_->Begin(step_number, options);
  });
  return std::make_shared<CheckpointSaveHandle>(process_, std::move(save), std::move(count));
}

std::string CheckpointsHandle::Upload(const nb::int_& step, const std::string& attempt, const Shards& shards) const {
  CheckOwnProcess();
  const uint64_t step_number = ToNatural("step", step);
  if (EpochOfAttempt(attempt) == 0) throw nb::value_error("no name of an attempt");
  const ShardViews views(shards);
  return RunInterruptibly([&](const std::stop_token& stop) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(const auto written, checkpoints_->Upload(step_number, attempt, views.sources, stop));
    return ShardsToJson(written);
  });
}

void CheckpointsHandle::Finish(const std::shared_ptr<CheckpointSaveHandle>& save,
                               const std::vector<std::string>& uploaded) {
  CheckOwnProcess();
  SaveProtocol protocol = save->Take();
  const ProcessLocal<CheckpointCounts::Save> count = save->TakeCount();
  RunInterruptibly([&](const std::stop_token& stop) -> absl::Status {
    const std::lock_guard lock(writing_);
    absl::StatusOr<std::vector<CheckpointShard>> all = std::vector<CheckpointShard>();
    for (const std::string& text : uploaded) {
      absl::StatusOr<std::vector<CheckpointShard>> some = ShardsFromJson(text);
      if (!some.ok()) {
        all = some.status();
        break;
      }
      all->insert(all->end(), std::make_move_iterator(some->begin()), std::make_move_iterator(some->end()));
    }
    return checkpoints_->Finish(std::move(protocol), std::move(all), stop).status();
  });
  count->Committed();
}

void CheckpointsHandle::Abandon(const std::shared_ptr<CheckpointSaveHandle>& save) {
  CheckOwnProcess();
  SaveProtocol protocol = save->Take();
  const ProcessLocal<CheckpointCounts::Save> failed = save->TakeCount();
  RunInterruptibly([&](const std::stop_token& stop) -> absl::Status {
    const std::lock_guard lock(writing_);
    const absl::Status ended =
        checkpoints_->Finish(std::move(protocol), absl::AbortedError("abandoned"), stop).status();
    return absl::IsFailedPrecondition(ended) ? ended : absl::OkStatus();
  });
}

SaveProtocol CheckpointSaveHandle::Take() {
  if (!save_) throw nb::value_error("the save was finished already");
  SaveProtocol taken = *std::move(save_);
  save_.reset();
  return taken;
}

std::vector<uint64_t> CheckpointsHandle::Steps() const {
  CheckOwnProcess();
  const auto catalog = RunInterruptibly([&](const std::stop_token& stop) { return checkpoints_->ReadCatalog(stop); });
  std::vector<uint64_t> steps;
  if (!catalog) return steps;
  for (const CheckpointEntry& entry : catalog->entries) steps.push_back(entry.step);
  return steps;
}

std::shared_ptr<CheckpointHandle> CheckpointsHandle::Find(const std::optional<nb::int_>& step) const {
  CheckOwnProcess();
  const std::optional<uint64_t> wanted = step ? std::optional(ToNatural("step", *step)) : std::nullopt;
  CheckpointManifest manifest =
      RunInterruptibly([&](const std::stop_token& stop) { return checkpoints_->FindManifest(wanted, stop); });
  return std::make_shared<CheckpointHandle>(maker_, process_, checkpoints_, std::move(manifest));
}

std::vector<std::pair<std::string, uint64_t>> CheckpointHandle::Shards() const {
  std::vector<std::pair<std::string, uint64_t>> shards;
  for (const CheckpointShard& shard : manifest_.shards) shards.emplace_back(shard.name, shard.bytes);
  return shards;
}

void CheckpointHandle::Read(const std::vector<nb::object>& into) const {
  CheckOwnProcess(maker_, "Checkpoints");
  if (into.size() != manifest_.shards.size()) throw nb::value_error("one buffer a shard is needed");
  std::vector<BufferView> views;
  std::vector<MutableByteSpan> spans;
  for (size_t i = 0; i < into.size(); ++i) {
    spans.push_back(views.emplace_back(into[i], PyBUF_WRITABLE).span());
    if (spans.back().size() != manifest_.shards[i].bytes) throw nb::value_error("a buffer has not the shard's size");
  }
  RunInterruptibly([&](const std::stop_token& stop) { return checkpoints_->Read(manifest_, spans, stop); });
}

uint64_t CheckpointHandle::ReadRanges(const std::vector<std::tuple<size_t, uint64_t, nb::object>>& ranges) const {
  CheckOwnProcess(maker_, "Checkpoints");
  std::vector<BufferView> views;
  std::vector<ShardRange> wanted;
  for (const auto& [shard, offset, object] : ranges) {
    if (shard >= manifest_.shards.size()) throw nb::value_error("there is no such shard");
    wanted.push_back({shard, offset, views.emplace_back(object, PyBUF_WRITABLE).span()});
  }
  return RunInterruptibly(
      [&](const std::stop_token& stop) { return checkpoints_->ReadRangesOf(manifest_, std::move(wanted), stop); });
}

void BindCheckpoints(nb::module_& module) {
  module.def("copy_past_caches", &CopyBuffer, nb::arg("into"), nb::arg("source"));
  nb::class_<CheckpointHandle>(module, "Checkpoint")
      .def_prop_ro("step", &CheckpointHandle::step)
      .def_prop_ro("shards", &CheckpointHandle::Shards)
      .def_prop_ro("attempt", &CheckpointHandle::attempt)
      .def("read", &CheckpointHandle::Read, nb::arg("into"))
      .def("read_ranges", &CheckpointHandle::ReadRanges, nb::arg("ranges"));
  nb::class_<CheckpointSaveHandle>(module, "CheckpointSave").def_prop_ro("attempt", &CheckpointSaveHandle::attempt);
  using Handle = CheckpointsHandle;
  nb::class_<Handle>(module, "Checkpoints")
      .def(nb::init<const std::string&>(), nb::arg("uri"))
      .def_prop_ro("uri", [](const Handle& self) { return ToPyText(self.uri()); })
      .def("claim", &Handle::Claim)
      .def("save", &Handle::Save, nb::arg("step"), nb::arg("shards"), nb::arg("keep"), nb::arg("keep_every"),
           nb::arg("keep_steps") = nb::list())
      .def("begin", &Handle::Begin, nb::arg("step"), nb::arg("keep"), nb::arg("keep_every"),
           nb::arg("keep_steps") = nb::list())
      .def("upload", &Handle::Upload, nb::arg("step"), nb::arg("attempt"), nb::arg("shards"))
      .def("finish", &Handle::Finish, nb::arg("save"), nb::arg("uploaded"))
      .def("abandon", &Handle::Abandon, nb::arg("save"))
      .def("steps", &Handle::Steps)
      .def("find", &Handle::Find, nb::arg("step"));
}

}  // namespace millrace::python
