#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arguments.h"
#include "batch_dict.h"
#include "bindings.h"
#include "field_options.h"
#include "loader_handle.h"
#include "loader_options.h"
#include "loader_report.h"
#include "pipeline/explain.h"

namespace millrace::python {

namespace {

void MakeLoaderHandle(LoaderHandle* self, std::vector<std::shared_ptr<DatasetHandle>> datasets,
                      const std::optional<MixTuple>& mix, const nb::int_& batch, const ImageTuple& image,
                      const std::vector<FieldTuple>& fields, const std::string& image_field,
                      const std::optional<std::string>& label_field, const std::string& label_kind,
                      const std::string& bad_samples, const std::string& shuffle,
                      const std::array<std::optional<nb::int_>, 3>& order, const nb::int_& seed, const nb::int_& epochs,
                      const nb::int_& rank, const nb::int_& world, const std::string& last, const std::string& memory,
                      const std::string& digest, const std::optional<TokensTuple>& tokens,
                      const std::string& token_type, int64_t pad_token, const std::string& cache,
                      const std::string& cache_size, const std::string& cache_tenant, bool pin,
                      const nb::int_& local_ranks, const std::optional<WorkersTuple>& workers,
                      const std::vector<std::pair<std::string, double>>& padding, bool finite_padding,
                      std::shared_ptr<StagedHandle> staged) {
  LoaderOptions options;
  options.image = ToImageSpec(image);
  options.fields = ToFields(fields);
  options.image_field = image_field;
  if (label_field) options.label = LabelOptions{*label_field, ValueOrThrow(LabelSpec::Parse(label_kind))};
  options.bad_samples =
      Choose<BadSamples>("bad_samples", bad_samples,
                         {{"fail", BadSamples::kFail}, {"replace", BadSamples::kReplace}, {"mask", BadSamples::kMask}});
  for (const auto& [name, value] : padding) options.padding.push_back({name, value});
  options.finite_padding = finite_padding;
  options.batch = ToNatural("batch_size", batch);
  options.shuffle = ValueOrThrow(ParseShuffle(shuffle));
  const auto natural = [](const char* name, const std::optional<nb::int_>& value) {
    return value ? std::optional<uint64_t>(ToNatural(name, *value)) : std::nullopt;
  };
  options.extent = natural("extent", order[0]);
  options.window = natural("window", order[1]);
  options.lanes = natural("lanes", order[2]);
  if (mix) options.mix = ToMixOptions(*mix);
  options.seed = ToNatural("seed", seed);
  options.epochs = ToNatural("epochs", epochs);
  options.rank = ToNatural("rank", rank);
  options.world = ToNatural("world", world);
  options.last = ValueOrThrow(ParseLastBatch(last));
  // Without one of its own, and without workers, it has a share of what all loaders of the process have.
  if (!memory.empty()) options.memory_bytes = ToBytes("memory", memory);
  const std::shared_ptr<Process>& process = staged != nullptr ? staged->process() : datasets.front()->process();
  if (memory.empty() && !workers) options.shares = &process->shares;
  options.digest = Choose<DigestOf>(
      "digest", digest, {{"none", DigestOf::kNone}, {"raw", DigestOf::kRaw}, {"decoded", DigestOf::kDecoded}});
  options.token_type =
      Choose<TokenType>("dtype", token_type, {{"int32", TokenType::kInt32}, {"int64", TokenType::kInt64}});
  options.pad_token = pad_token;
  options.cache = OpenCache(process, cache, cache_size, cache_tenant);
  options.pin = pin;
  options.local_ranks = ToNatural("local_ranks", local_ranks);
  if (staged != nullptr) {
    new (self) LoaderHandle(std::move(staged), std::move(options));
    return;
  }
  std::optional<TokenOptions> rows;
  if (tokens) rows = ToTokenOptions(*tokens);
  std::optional<ServiceOptions> service;
  if (workers) service = ToServiceOptions(*workers);
  new (self) LoaderHandle(std::move(datasets), std::move(options), rows, std::move(service));
}

// Returns [[(name, dtype, dims), ...], ...].
nb::list ToList(const std::vector<BatchShape>& shapes) {
  nb::list list;
  for (const BatchShape& shape : shapes) {
    nb::list arrays;
    for (const ArrayShape& array : shape)
      arrays.append(nb::make_tuple(array.name, array.dtype, nb::tuple(nb::cast(array.dims))));
    list.append(arrays);
  }
  return list;
}

/// Python gives it as (name, channels, whether they come first, mean, std).
using FloatTuple = std::tuple<std::string, size_t, bool, PerChannel, PerChannel, std::string, nb::object, nb::object>;

std::vector<FloatImage> ToFloatImages(const std::vector<FloatTuple>& images) {
  std::vector<FloatImage> result;
  for (const auto& [name, channels, channels_first, mean, std, kind, element, view] : images) {
    FloatImage& image = result.emplace_back(FloatImage{.name = name, .channels = channels, .scale = {}});
    image.channels_first = channels_first;
    image.scale.Set(mean, std);
    image.element = element;
    image.view = view;
    if (kind == "f32") continue;
    image.half = kind == "f16" ? HalfType::kF16 : HalfType::kBf16;
    image.halves.emplace(image.scale, *image.half);
  }
  return result;
}

// Returns what the rows of each table are.
nb::list RowsList(const LoaderHandle& loader) {
  nb::list list;
  for (const LoaderExplanation::Rows& rows : DescribeRows(loader.source())) {
    nb::dict entry;
    entry["length"] = rows.length;
    entry["rows"] = rows.counts.rows;
    entry["tokens"] = rows.counts.tokens;
    entry["documents"] = rows.counts.samples;
    entry["truncated"] = rows.counts.truncated;
    entry["empty"] = rows.counts.empty;
    entry["fill"] = rows.counts.Fill(rows.length);
    list.append(entry);
  }
  return list;
}

// This is _core.Batches: a `for` loop over a Loader iterates over it, the rest of one epoch. That all of it is native
// is what makes the position of a Loader exact: Python looks for signals between its own instructions only, so a
// handler that raises (Ctrl-C) cannot come between the step of the position and the loop's variable.
class Batches {
 public:
  Batches(std::shared_ptr<LoaderHandle> loader, HandOver hand_over)
      : loader_(std::move(loader)), converter_(std::move(hand_over)), epoch_(loader_->epoch()) {}

  // Returns None if there is none for a while; otherwise it does as Next.
  nb::object Poll() {
    if (!ended_) {
      std::optional<std::optional<Batch>> polled = loader_->Poll(epoch_);
      if (!polled) return nb::none();
      if (*polled) {
        slot_ = (*polled)->slot;
        ++delivered_;
        rows_ = (*polled)->size;
        const BatchShape& shape = loader_->shapes()[(*polled)->shape];
        nb::object converted = converter_.Convert(shape, loader_->process(), **std::move(polled));
        loader_->AddConversion(converter_.TakeCpuTime());
        return converted;
      }
    }
    ended_ = true;
    throw nb::stop_iteration();
  }

  // Returns address and size of the slot of the batch that Poll has given last.
  std::pair<uintptr_t, size_t> slot() const { return {reinterpret_cast<uintptr_t>(slot_.data()), slot_.size()}; }

  uint64_t delivered() const { return delivered_; }  // batches

  // Returns the rows of that batch: the shape's, or fewer in a short last one.
  uint64_t rows() const { return rows_; }

  // The handlers of signals run while it waits. They may fork, or raise what comes out of here.
  nb::object Next() {
    for (;;) {
      if (nb::object batch = Poll(); !batch.is_none()) return batch;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }

 private:
  std::shared_ptr<LoaderHandle> loader_;
  BatchConverter converter_;
  const uint64_t epoch_;
  MutableByteSpan slot_;
  uint64_t delivered_ = 0;
  uint64_t rows_ = 0;
  bool ended_ = false;
};

}  // namespace

void BindLoader(nb::module_& module) {
  module.def("consumer_limits", &ConsumerLimits, nb::arg("waited"), nb::arg("seconds"));
  nb::class_<Batches>(module, "Batches")
      .def("__iter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__next__", &Batches::Next)
      .def("poll", &Batches::Poll)
      .def_prop_ro("delivered", &Batches::delivered)
      .def_prop_ro("slot", &Batches::slot)
      .def_prop_ro("rows", &Batches::rows);
  nb::class_<LoaderCounts>(module, "Counts");  // NOLINT(bugprone-unused-raii): it registers the class
  using Handle = LoaderHandle;
  nb::class_<Handle>(module, "Loader")
      .def("__init__", &MakeLoaderHandle, nb::arg("datasets"), nb::kw_only(), nb::arg("mix"), nb::arg("batch"),
           nb::arg("image"), nb::arg("fields"), nb::arg("image_field"), nb::arg("label_field"), nb::arg("label_kind"),
           nb::arg("bad_samples"), nb::arg("shuffle"), nb::arg("order"), nb::arg("seed"), nb::arg("epochs"),
           nb::arg("rank"), nb::arg("world"), nb::arg("last"), nb::arg("memory"), nb::arg("digest"), nb::arg("tokens"),
           nb::arg("token_type"), nb::arg("pad_token"), nb::arg("cache"), nb::arg("cache_size"),
           nb::arg("cache_tenant"), nb::arg("pin"), nb::arg("local_ranks"), nb::arg("workers"), nb::arg("padding"),
           nb::arg("finite_padding"), nb::arg("staged").none())
      .def(
          "batches",
          [](std::shared_ptr<LoaderHandle> self, nb::object convert, const std::vector<FloatTuple>& floats,
             std::vector<std::string> as_tuple) {
            HandOver hand_over{.convert = std::move(convert),
                               .padding = self->options().padding,
                               .floats = ToFloatImages(floats),
                               .as_tuple = std::move(as_tuple)};
            return Batches(std::move(self), std::move(hand_over));
          },
          nb::arg("convert").none(), nb::arg("floats") = nb::list(), nb::arg("as_tuple") = nb::list())
      .def("again", [](const Handle& self) { return std::make_shared<Handle>(self); })
      .def("settled", &Handle::Settled, nb::arg("position"))
      .def("begin", &Handle::Begin, nb::arg("position"), nb::arg("epochs"), nb::arg("counts").none())
      .def("start", &Handle::Start)
      .def("stop", &Handle::Stop)
      .def("close", &Handle::Close)
      .def("shapes", [](const Handle& self) { return ToList(self.shapes()); })
      .def("rows", &RowsList)
      .def("counts", [](Handle& self) { return std::make_shared<LoaderCounts>(self.Report()); })
      .def("count_program_waits", &Handle::CountProgramWaits, nb::arg("work"))
      .def("program_calls",
           [](Handle& self) {
             if (auto* const program = self.program()) program->Call(std::chrono::steady_clock::now());
           })
      .def(
          "program_waits",
          [](Handle& self, bool for_work) {
            if (auto* const program = self.program()) program->Begin(for_work, std::chrono::steady_clock::now());
          },
          nb::arg("for_work"))
      .def("program_waited",
           [](Handle& self) {
             if (auto* const program = self.program()) program->End(std::chrono::steady_clock::now());
           })
      .def(
          "report",
          [](Handle& self, const std::shared_ptr<LoaderCounts>& counts) {
            return ToDict(counts == nullptr ? self.Report() : *counts, self.Forecast(), self.with_digest());
          },
          nb::arg("counts") = nb::none())
      .def_prop_ro("epoch", &Handle::epoch)
      .def_prop_ro("steps_per_epoch", &Handle::steps_per_epoch)
      .def_prop_ro("counted_steps", &Handle::counted_steps)
      .def_prop_ro("estimated_steps", &Handle::estimated_steps);
}

}  // namespace millrace::python
