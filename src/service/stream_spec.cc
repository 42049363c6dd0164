#include "service/stream_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <utility>

#include "base/byte_reader.h"
#include "dataset/object_selection.h"
#include "store/uri.h"

namespace millrace {

namespace {

constexpr std::string_view kSpecMagic = "millrace-stream";
constexpr uint64_t kMaxSpecParts = Mix::kMaxParts;
constexpr uint64_t kMaxSpecFields = 1024;
constexpr uint64_t kMaxSpecClasses = uint64_t{1} << 24;  // that of an index
constexpr uint64_t kMaxSpecTransforms = 1024;            // of an image; and the numbers of one
constexpr uint64_t kMaxUniverse = uint64_t{1} << 48;

/// Writes what a visit goes through. The second arguments are for SpecReader.
class SpecWriter {
 public:
  void Number(uint64_t value, uint64_t /*most*/ = 0) { AppendVarint(out_, value); }
  void Signed(int64_t value) { AppendVarint(out_, static_cast<uint64_t>(value)); }
  void Int(int value) { AppendVarint(out_, static_cast<uint64_t>(std::max(0, value))); }
  void Flag(bool value) { AppendVarint(out_, value ? 1 : 0); }
  template <typename E>
  void Enum(E value, E /*last*/) {
    AppendVarint(out_, static_cast<uint64_t>(value));
  }
  void Real(double value) { AppendLe(out_, std::bit_cast<uint64_t>(value)); }
  void Text(const std::string& text) { AppendText(out_, text); }
  void Start(const std::optional<Position>& start) { Text(start.value_or(Position{}).ToString()); }
  template <typename T, typename Visit>
  void Maybe(const std::optional<T>& value, Visit visit) {
    Flag(value.has_value());
    if (value) visit(*value);
  }
  template <typename T, typename Visit>
  void Each(const std::vector<T>& list, uint64_t /*most*/, Visit visit) {
    Number(list.size());
    for (const T& entry : list) visit(entry);
  }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_{kSpecMagic};
};

/// Reads what SpecWriter has written; after something that cannot be, ok() is false.
class SpecReader {
 public:
  explicit SpecReader(ByteSpan bytes) : reader_(bytes) {}

  bool ok() const { return reader_.ok(); }
  bool at_end() const { return reader_.at_end(); }
  /// Returns the error of a position that is not valid.
  const absl::Status& start_status() const { return start_status_; }

  void Number(uint64_t& value, uint64_t most = UINT64_MAX) {
    value = reader_.Varint();
    if (value > most) reader_.Fail();
    if (!reader_.ok()) value = 0;
  }
  void Signed(int64_t& value) { value = static_cast<int64_t>(reader_.Varint()); }
  void Int(int& value) { value = static_cast<int>(Next(INT32_MAX)); }
  void Flag(bool& value) { value = Next(1) == 1; }
  template <typename E>
  void Enum(E& value, E last) {
    value = static_cast<E>(Next(static_cast<uint64_t>(last)));
  }
  template <typename F>
  void Real(F& value) {
    const ByteSpan bytes = reader_.Bytes(sizeof(uint64_t));
    value = static_cast<F>(reader_.ok() ? std::bit_cast<double>(LoadLe<uint64_t>(bytes.data())) : 0);
  }
  void Text(std::string& text) { text = reader_.Text(reader_.Varint()); }
  void Start(std::optional<Position>& start) {
    const absl::StatusOr<Position> parsed = Position::Parse(reader_.Text(reader_.Varint()));
    if (reader_.ok()) start_status_ = parsed.status();
    start = parsed.value_or(Position{});
  }
  template <typename T, typename Visit>
  void Maybe(std::optional<T>& value, Visit visit) {
    if (Next(1) == 1) visit(value.emplace());
  }
  /// Each entry takes a byte at least, so that a damaged number cannot make a large list.
  template <typename T, typename Visit>
  void Each(std::vector<T>& list, uint64_t most, Visit visit) {
    const uint64_t count = Next(std::min<uint64_t>(most, reader_.left()));
    for (uint64_t i = 0; i < count && ok(); ++i) visit(list.emplace_back());
  }

 private:
  uint64_t Next(uint64_t most) {
    uint64_t value = 0;
    Number(value, most);
    return value;
  }

  ByteReader reader_;
  absl::Status start_status_;
};

// ---- The format: a visit by a SpecWriter writes a value, one by a SpecReader reads it.

template <typename Visitor>
void VisitImage(Visitor& to, auto& image) {
  for (auto* number : {&image.height, &image.width, &image.channels}) to.Int(*number);
  to.Enum(image.interpolation, Interpolation::kBox);
  to.Flag(image.numbers);
  to.Flag(image.exif_orientation);
  to.Flag(image.augment);
  to.Enum(image.dtype, DType::kF32);
  to.Enum(image.layout, Layout::kNchw);
  for (auto& number : image.crop_scale) to.Real(number);
  for (auto& number : image.crop_ratio) to.Real(number);
  to.Real(image.flip_probability);
  for (auto& number : image.mean) to.Real(number);
  for (auto& number : image.std) to.Real(number);
  to.Flag(image.exact);
  to.Each(image.transforms, kMaxSpecTransforms, [&to](auto& transform) {
    to.Enum(transform.kind, ImageTransform::Kind::kErasing);
    to.Real(transform.probability);
    to.Each(transform.numbers, kMaxSpecTransforms, [&to](auto& number) { to.Real(number); });
  });
}

template <typename Visitor>
void VisitLabel(Visitor& to, auto& label) {
  to.Enum(label.kind, LabelSpec::Kind::kText);
  to.Text(label.json_path);
}

template <typename Visitor>
void VisitField(Visitor& to, auto& field) {
  to.Text(field.name);
  to.Text(field.field);
  to.Enum(field.kind, BatchField::Kind::kBoxes);
  VisitImage(to, field.image);
  to.Text(field.like);
  VisitLabel(to, field.label);
  to.Enum(field.boxes.form, BoxSpec::Form::kCxcywh);
  to.Flag(field.boxes.normalized);
  to.Text(field.boxes.json_path);
}

template <typename Visitor>
void VisitPart(Visitor& to, auto& part) {
  to.Text(part.uri);
  to.Number(part.fingerprint);
  to.Number(part.samples);
  to.Maybe(part.members, [&to](auto& members) { to.Text(members); });
  to.Maybe(part.labels, [&](auto& labels) {
    for (auto* text : {&labels.uri, &labels.key_column, &labels.label_column}) to.Text(*text);
    to.Flag(labels.quotes);
    to.Number(part.labels_id);
  });
  to.Each(part.classes, kMaxSpecClasses, [&to](auto& name) { to.Text(name); });
}

template <typename Visitor>
void VisitTokens(Visitor& to, auto& tokens) {
  to.Enum(tokens.layout, RowLayout::kPack);
  to.Number(tokens.length);
  to.Flag(tokens.documents);
  to.Enum(tokens.longer, LongSamples::kRefuse);
  to.Text(tokens.field);
  to.Text(tokens.stored);
}

template <typename Visitor>
void VisitFunction(Visitor& to, auto& function) {
  to.Text(function.name);
  to.Text(function.uri);
  to.Flag(function.wants_tensors);
  to.Flag(function.is_mix);
  for (auto* number :
       {&function.most_bytes, &function.seed, &function.rank, &function.world, &function.streams, &function.stream}) {
    to.Number(*number);
  }
}

template <typename Visitor>
void VisitMix(Visitor& to, auto& mix) {
  to.Number(mix.length);
  to.Each(mix.stages, Mix::kMaxStages, [&to](auto& stage) {
    to.Number(stage.from);
    to.Each(stage.weights, Mix::kMaxWeights, [&to](auto& weight) { to.Number(weight, Mix::kMaxWeight); });
  });
  to.Enum(mix.draws, Draws::kIndependent);
  to.Flag(mix.fresh_passes);
}

template <typename Visitor>
void VisitOptions(Visitor& to, auto& options) {
  to.Each(options.fields, kMaxSpecFields, [&to](auto& field) { VisitField(to, field); });
  VisitImage(to, options.image);
  to.Text(options.image_field);
  to.Flag(options.allow_arrays);
  to.Maybe(options.label, [&to](auto& label) {
    to.Text(label.field);
    VisitLabel(to, label.spec);
  });
  to.Enum(options.bad_samples, BadSamples::kMask);
  to.Each(options.padding, kMaxSpecFields, [&to](auto& padding) {
    to.Text(padding.name);
    to.Real(padding.value);
  });
  to.Flag(options.finite_padding);
  to.Enum(options.token_type, TokenType::kInt64);
  to.Signed(options.pad_token);
  to.Number(options.batch);
  to.Enum(options.shuffle, Shuffle::kWindow);
  for (auto* size : {&options.extent, &options.window, &options.lanes}) {
    to.Maybe(*size, [&to](auto& number) { to.Number(number); });
  }
  to.Maybe(options.mix, [&to](auto& mix) { VisitMix(to, mix); });
  for (auto* number : {&options.seed, &options.epochs, &options.rank, &options.world}) to.Number(*number);
  to.Enum(options.last, LastBatch::kShort);
  to.Start(options.start);
  to.Number(options.memory_bytes);
  to.Enum(options.digest, DigestOf::kDecoded);
}

template <typename Visitor>
void VisitSpec(Visitor& to, auto& spec) {
  to.Each(spec.parts, kMaxSpecParts, [&to](auto& part) { VisitPart(to, part); });
  to.Maybe(spec.tokens, [&to](auto& tokens) { VisitTokens(to, tokens); });
  to.Maybe(spec.function, [&to](auto& function) { VisitFunction(to, function); });
  to.Flag(spec.compress);
  VisitOptions(to, spec.options);
}

// Writes the count, and the distance of each member from the one before it.
std::string EncodeMembers(const Selection& selection) {
  std::string out;
  AppendVarint(out, selection.size());
  constexpr size_t kAtOnce = 4096;
  std::vector<uint64_t> members(kAtOnce);
  uint64_t last = 0;
  for (uint64_t rank = 0; rank < selection.size(); rank += kAtOnce) {
    const std::span<uint64_t> some(members.data(), std::min<uint64_t>(kAtOnce, selection.size() - rank));
    selection.Read(rank, some);
    for (const uint64_t member : some) {
      AppendVarint(out, member - last);  // the first one may be 0, all others are at least 1
      last = member;
    }
  }
  return out;
}

// Returns a name as it is between braces; backslashes that are there already stay.
std::string Alternative(std::string_view name) {
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '\\' && i + 1 < name.size()) {
      text += name[i++];
    } else if (name[i] == ',' || name[i] == '{' || name[i] == '}') {
      text += '\\';
    }
    text += name[i];
  }
  return text;
}

// A worker has another working folder, and takes no name with "..".
absl::StatusOr<std::string> AbsoluteUri(const std::string& uri) {
  if (uri.starts_with('{') || uri.find("../") != uri.npos) {
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ExpandBraces(uri));
    std::string list;
    for (const std::string& name : names) {
      if (names.size() == 1) break;
      ASSIGN_OR_RETURN(const std::string absolute, AbsoluteUri(name));
      list += (list.empty() ? "{" : ",") + Alternative(absolute);
    }
    if (!list.empty()) return list + "}";
  }
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
  if (parsed.scheme != ParsedUri::Scheme::kFile) return uri;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(parsed.path, error);
  return error ? uri : path.lexically_normal().string();
}

}  // namespace

absl::StatusOr<StreamSpec> SpecOf(const Source& source, const LoaderOptions& options) {
  StreamSpec spec;
  spec.options = options;
  spec.options.cache = nullptr;
  if (source.tokens() != nullptr) {
    if (!source.tokens()->buckets.empty()) {
      return absl::InvalidArgumentError(
          "workers cannot feed buckets of tokens yet; use rows of one length, or leave the workers out");
    }
    spec.tokens = *source.tokens();
  }
  for (const Subset& subset : source.parts()) {
    const Dataset& dataset = *subset.dataset;
    StreamSpec::Part part{
        .uri = dataset.uri(), .fingerprint = dataset.index().fingerprint(), .samples = dataset.index().size()};
    if (subset.selection) part.members = EncodeMembers(*subset.selection);
    ASSIGN_OR_RETURN(part.uri, AbsoluteUri(part.uri));
    if (dataset.labels() != nullptr) {
      part.labels = *dataset.labels();
      part.labels_id = dataset.labels_id();
      ASSIGN_OR_RETURN(part.labels->uri, AbsoluteUri(part.labels->uri));
    }
    part.classes = dataset.classes();
    spec.parts.push_back(std::move(part));
  }
  return spec;
}

absl::StatusOr<Selection> MembersOf(const StreamSpec::Part& part) {
  const auto damaged = [&part] {
    return absl::InvalidArgumentError(fmt::format("the samples that the trainer takes of {} are damaged", part.uri));
  };
  ByteReader reader(part.members ? AsBytes(*part.members) : ByteSpan());
  const uint64_t members = reader.Varint();
  if (!reader.ok() || members > reader.left() || part.samples > kMaxUniverse) return damaged();
  Selection::Builder builder(part.samples);
  uint64_t last = 0;
  for (uint64_t i = 0; i < members; ++i) {
    const uint64_t step = reader.Varint();
    if (!reader.ok() || (i > 0 && step == 0) || step >= part.samples || last + step >= part.samples) return damaged();
    last += step;
    builder.Add(last);
  }
  if (!reader.at_end()) return damaged();
  return std::move(builder).Finish();
}

std::string EncodeStreamSpec(const StreamSpec& spec) {
  SpecWriter writer;
  writer.Number(kServiceVersion);
  VisitSpec(writer, spec);
  return writer.Take();
}

absl::StatusOr<StreamSpec> ParseStreamSpec(ByteSpan bytes) {
  const auto damaged = [] {
    return absl::InvalidArgumentError("the request to open a stream is damaged: it is not what a trainer writes");
  };
  if (bytes.size() > StreamSpec::kMaxBytes || !AsText(bytes).starts_with(kSpecMagic)) return damaged();
  SpecReader reader(bytes.subspan(kSpecMagic.size()));
  uint64_t version = 0;
  reader.Number(version);
  if (reader.ok() && version != kServiceVersion) {
    return absl::InvalidArgumentError(fmt::format(
        "the stream is described in version {} of the data service, and this program speaks version {}; install the "
        "same Millrace on trainers and workers",
        version, kServiceVersion));
  }
  StreamSpec spec;
  VisitSpec(reader, spec);
  RETURN_IF_ERROR(reader.start_status());
  if (!reader.ok() || !reader.at_end() || spec.parts.empty()) return damaged();
  return spec;
}

}  // namespace millrace
