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
constexpr uint64_t kMaxSpecTransforms = 1024;  // of an image; and the numbers of one
constexpr uint64_t kMaxUniverse = uint64_t{1} << 48;

// ---- Writing

void AppendNumber(std::string& out, uint64_t value) {
  AppendVarint(out, value);
}
template <typename E>
void AppendEnum(std::string& out, E value) {
  AppendVarint(out, static_cast<uint64_t>(value));
}
void AppendReal(std::string& out, double value) {
  AppendLe(out, std::bit_cast<uint64_t>(value));
}
void AppendOptional(std::string& out, const std::optional<uint64_t>& value) {
  AppendVarint(out, value ? 1 : 0);
  if (value) AppendVarint(out, *value);
}

void AppendImage(std::string& out, const ImageSpec& image) {
  for (const int number : {image.height, image.width, image.channels}) {
    AppendNumber(out, static_cast<uint64_t>(std::max(0, number)));
  }
  AppendEnum(out, image.interpolation);
  AppendNumber(out, image.numbers ? 1 : 0);
  AppendNumber(out, image.exif_orientation ? 1 : 0);
  AppendNumber(out, image.augment ? 1 : 0);
  AppendEnum(out, image.dtype);
  AppendEnum(out, image.layout);
  for (const double number : image.crop_scale) AppendReal(out, number);
  for (const double number : image.crop_ratio) AppendReal(out, number);
  AppendReal(out, image.flip_probability);
  for (const float number : image.mean) AppendReal(out, number);
  for (const float number : image.std) AppendReal(out, number);
  AppendNumber(out, image.exact ? 1 : 0);
  AppendNumber(out, image.transforms.size());
  for (const ImageTransform& transform : image.transforms) {
    AppendEnum(out, transform.kind);
    AppendReal(out, transform.probability);
    AppendNumber(out, transform.numbers.size());
    for (const double number : transform.numbers) AppendReal(out, number);
  }
}

void AppendLabel(std::string& out, const LabelSpec& label) {
  AppendEnum(out, label.kind);
  AppendText(out, label.json_path);
}

// The count, and the distance of each member from the one before it.
std::string EncodeMembers(const Selection& selection) {
  std::string out;
  AppendNumber(out, selection.size());
  constexpr size_t kAtOnce = 4096;
  std::vector<uint64_t> members(kAtOnce);
  uint64_t last = 0;
  for (uint64_t rank = 0; rank < selection.size(); rank += kAtOnce) {
    const std::span<uint64_t> some(members.data(), std::min<uint64_t>(kAtOnce, selection.size() - rank));
    selection.Read(rank, some);
    for (const uint64_t member : some) {
      AppendNumber(out, member - last);  // the first one may be 0, all others are at least 1
      last = member;
    }
  }
  return out;
}

void AppendTokens(std::string& out, const std::optional<TokenOptions>& tokens) {
  AppendNumber(out, tokens ? 1 : 0);
  if (!tokens) return;
  AppendEnum(out, tokens->layout);
  AppendNumber(out, tokens->length);
  AppendNumber(out, tokens->documents ? 1 : 0);
  AppendEnum(out, tokens->longer);
  AppendText(out, tokens->field);
}

void AppendFunction(std::string& out, const std::optional<RowFunction>& function) {
  AppendNumber(out, function ? 1 : 0);
  if (!function) return;
  AppendText(out, function->name);
  AppendText(out, function->uri);
  AppendNumber(out, function->wants_tensors ? 1 : 0);
  AppendNumber(out, function->is_mix ? 1 : 0);
  for (const uint64_t number :
       {function->most_bytes, function->seed, function->rank, function->world, function->streams, function->stream}) {
    AppendNumber(out, number);
  }
}

void AppendMix(std::string& out, const std::optional<MixOptions>& mix) {
  AppendNumber(out, mix ? 1 : 0);
  if (!mix) return;
  AppendNumber(out, mix->length);
  AppendNumber(out, mix->stages.size());
  for (const Mix::Stage& stage : mix->stages) {
    AppendNumber(out, stage.from);
    AppendNumber(out, stage.weights.size());
    for (const uint64_t weight : stage.weights) AppendNumber(out, weight);
  }
  AppendEnum(out, mix->draws);
  AppendNumber(out, mix->fresh_passes ? 1 : 0);
}

// ---- Reading

/// Reads what the functions above have written; after something that cannot be, ok() is false.
class SpecReader {
 public:
  explicit SpecReader(ByteSpan bytes) : reader_(bytes) {}

  bool ok() const { return reader_.ok(); }
  bool at_end() const { return reader_.at_end(); }

  uint64_t Number(uint64_t most = UINT64_MAX) {
    const uint64_t value = reader_.Varint();
    if (value > most) reader_.Fail();
    return reader_.ok() ? value : 0;
  }
  bool Flag() { return Number(1) == 1; }
  template <typename E>
  E Enum(E last) {
    return static_cast<E>(Number(static_cast<uint64_t>(last)));
  }
  int Int() { return static_cast<int>(Number(INT32_MAX)); }
  double Real() {
    const ByteSpan bytes = reader_.Bytes(sizeof(uint64_t));
    return reader_.ok() ? std::bit_cast<double>(LoadLe<uint64_t>(bytes.data())) : 0;
  }
  std::string Text() { return std::string(reader_.Text(reader_.Varint())); }
  std::optional<uint64_t> Optional() { return Flag() ? std::optional<uint64_t>(Number()) : std::nullopt; }
  /// How many entries follow: each takes a byte at least, so that a damaged number cannot make a large list.
  uint64_t Count(uint64_t most = UINT64_MAX) { return Number(std::min<uint64_t>(most, reader_.left())); }

  ImageSpec ReadImage() {
    ImageSpec image;
    image.height = Int();
    image.width = Int();
    image.channels = Int();
    image.interpolation = Enum(Interpolation::kBox);
    image.numbers = Flag();
    image.exif_orientation = Flag();
    image.augment = Flag();
    image.dtype = Enum(DType::kF32);
    image.layout = Enum(Layout::kNchw);
    for (double& number : image.crop_scale) number = Real();
    for (double& number : image.crop_ratio) number = Real();
    image.flip_probability = Real();
    for (float& number : image.mean) number = static_cast<float>(Real());
    for (float& number : image.std) number = static_cast<float>(Real());
    image.exact = Flag();
    const uint64_t transforms = Count(kMaxSpecTransforms);
    for (uint64_t i = 0; i < transforms && ok(); ++i) {
      ImageTransform& transform = image.transforms.emplace_back();
      transform.kind = Enum(ImageTransform::Kind::kErasing);
      transform.probability = Real();
      const uint64_t numbers = Count(kMaxSpecTransforms);
      for (uint64_t j = 0; j < numbers && ok(); ++j) transform.numbers.push_back(Real());
    }
    return image;
  }
  LabelSpec ReadLabel() {
    LabelSpec label;
    label.kind = Enum(LabelSpec::Kind::kText);
    label.json_path = Text();
    return label;
  }
  BatchField ReadField() {
    BatchField field;
    field.name = Text();
    field.field = Text();
    field.kind = Enum(BatchField::Kind::kBoxes);
    field.image = ReadImage();
    field.like = Text();
    field.label = ReadLabel();
    field.boxes.form = Enum(BoxSpec::Form::kCxcywh);
    field.boxes.normalized = Flag();
    field.boxes.json_path = Text();
    return field;
  }
  StreamSpec::Part ReadPart() {
    StreamSpec::Part part;
    part.uri = Text();
    part.fingerprint = Number();
    part.samples = Number();
    if (Flag()) part.members = Text();
    if (!Flag()) return part;
    part.labels.emplace();
    for (std::string* text : {&part.labels->uri, &part.labels->key_column, &part.labels->label_column}) *text = Text();
    part.labels_id = Number();
    return part;
  }
  std::optional<TokenOptions> ReadTokens() {
    if (!Flag()) return std::nullopt;
    TokenOptions tokens;
    tokens.layout = Enum(RowLayout::kPack);
    tokens.length = Number();
    tokens.documents = Flag();
    tokens.longer = Enum(LongSamples::kRefuse);
    tokens.field = Text();
    return tokens;
  }
  std::optional<RowFunction> ReadFunction() {
    if (!Flag()) return std::nullopt;
    RowFunction function;
    function.name = Text();
    function.uri = Text();
    function.wants_tensors = Flag();
    function.is_mix = Flag();
    for (uint64_t* number :
         {&function.most_bytes, &function.seed, &function.rank, &function.world, &function.streams, &function.stream}) {
      *number = Number();
    }
    return function;
  }
  std::optional<MixOptions> ReadMix() {
    if (!Flag()) return std::nullopt;
    MixOptions mix;
    mix.length = Number();
    const uint64_t stages = Count(Mix::kMaxStages);
    for (uint64_t i = 0; i < stages && ok(); ++i) {
      Mix::Stage& stage = mix.stages.emplace_back();
      stage.from = Number();
      const uint64_t weights = Count(Mix::kMaxWeights);
      for (uint64_t j = 0; j < weights && ok(); ++j) stage.weights.push_back(Number(Mix::kMaxWeight));
    }
    mix.draws = Enum(Draws::kIndependent);
    mix.fresh_passes = Flag();
    return mix;
  }

 private:
  ByteReader reader_;
};

void AppendOptions(std::string& out, const LoaderOptions& options) {
  AppendNumber(out, options.fields.size());
  for (const BatchField& field : options.fields) {
    AppendText(out, field.name);
    AppendText(out, field.field);
    AppendEnum(out, field.kind);
    AppendImage(out, field.image);
    AppendText(out, field.like);
    AppendLabel(out, field.label);
    AppendEnum(out, field.boxes.form);
    AppendNumber(out, field.boxes.normalized ? 1 : 0);
    AppendText(out, field.boxes.json_path);
  }
  AppendImage(out, options.image);
  AppendText(out, options.image_field);
  AppendNumber(out, options.allow_arrays ? 1 : 0);
  AppendNumber(out, options.label ? 1 : 0);
  if (options.label) {
    AppendText(out, options.label->field);
    AppendLabel(out, options.label->spec);
  }
  AppendEnum(out, options.bad_samples);
  AppendEnum(out, options.token_type);
  AppendNumber(out, static_cast<uint64_t>(options.pad_token));
  AppendNumber(out, options.batch);
  AppendEnum(out, options.shuffle);
  AppendOptional(out, options.extent);
  AppendOptional(out, options.window);
  AppendOptional(out, options.lanes);
  AppendMix(out, options.mix);
  AppendNumber(out, options.seed);
  AppendNumber(out, options.epochs);
  AppendNumber(out, options.rank);
  AppendNumber(out, options.world);
  AppendEnum(out, options.last);
  AppendText(out, options.start.value_or(Position{}).ToString());
  AppendNumber(out, options.memory_bytes);
  AppendEnum(out, options.digest);
}

absl::Status ReadOptions(SpecReader& reader, LoaderOptions* options) {
  const uint64_t fields = reader.Count(kMaxSpecFields);
  for (uint64_t i = 0; i < fields && reader.ok(); ++i) options->fields.push_back(reader.ReadField());
  options->image = reader.ReadImage();
  options->image_field = reader.Text();
  options->allow_arrays = reader.Flag();
  if (reader.Flag()) {
    options->label.emplace();
    options->label->field = reader.Text();
    options->label->spec = reader.ReadLabel();
  }
  options->bad_samples = reader.Enum(BadSamples::kMask);
  options->token_type = reader.Enum(TokenType::kInt64);
  options->pad_token = static_cast<int64_t>(reader.Number());
  options->batch = reader.Number();
  options->shuffle = reader.Enum(Shuffle::kWindow);
  options->extent = reader.Optional();
  options->window = reader.Optional();
  options->lanes = reader.Optional();
  options->mix = reader.ReadMix();
  options->seed = reader.Number();
  options->epochs = reader.Number();
  options->rank = reader.Number();
  options->world = reader.Number();
  options->last = reader.Enum(LastBatch::kWrap);
  const absl::StatusOr<Position> start = Position::Parse(reader.Text());
  if (reader.ok() && !start.ok()) return start.status();
  options->start = start.value_or(Position{});
  options->memory_bytes = reader.Number();
  options->digest = reader.Enum(DigestOf::kDecoded);
  return absl::OkStatus();
}

}  // namespace

namespace {

// A name as it stands between braces; backslashes that are there already stay.
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
  std::string out(kSpecMagic);
  AppendNumber(out, kServiceVersion);
  AppendNumber(out, spec.parts.size());
  for (const StreamSpec::Part& part : spec.parts) {
    AppendText(out, part.uri);
    AppendNumber(out, part.fingerprint);
    AppendNumber(out, part.samples);
    AppendNumber(out, part.members ? 1 : 0);
    if (part.members) AppendText(out, *part.members);
    AppendNumber(out, part.labels ? 1 : 0);
    if (!part.labels) continue;
    for (const std::string* text : {&part.labels->uri, &part.labels->key_column, &part.labels->label_column})
      AppendText(out, *text);
    AppendNumber(out, part.labels_id);
  }
  AppendTokens(out, spec.tokens);
  AppendFunction(out, spec.function);
  AppendNumber(out, spec.compress ? 1 : 0);
  AppendOptions(out, spec.options);
  return out;
}

absl::StatusOr<StreamSpec> ParseStreamSpec(ByteSpan bytes) {
  const auto damaged = [] {
    return absl::InvalidArgumentError("the request to open a stream is damaged: it is not what a trainer writes");
  };
  if (bytes.size() > StreamSpec::kMaxBytes || !AsText(bytes).starts_with(kSpecMagic)) return damaged();
  SpecReader reader(bytes.subspan(kSpecMagic.size()));
  const uint64_t version = reader.Number();
  if (reader.ok() && version != kServiceVersion) {
    return absl::InvalidArgumentError(fmt::format(
        "the stream is described in version {} of the data service, and this program speaks version {}; install the "
        "same Millrace on trainers and workers",
        version, kServiceVersion));
  }
  StreamSpec spec;
  const uint64_t parts = reader.Count(kMaxSpecParts);
  for (uint64_t i = 0; i < parts && reader.ok(); ++i) spec.parts.push_back(reader.ReadPart());
  spec.tokens = reader.ReadTokens();
  spec.function = reader.ReadFunction();
  spec.compress = reader.Flag();
  RETURN_IF_ERROR(ReadOptions(reader, &spec.options));
  if (!reader.ok() || !reader.at_end() || spec.parts.empty()) return damaged();
  return spec;
}

}  // namespace millrace
