/** Everything that somebody else decides the size of has a limit. */
export type ImageLimits = {
  readonly layers: number;
  /** Of a layer as it is downloaded. */
  readonly blobBytes: number;
  readonly manifestBytes: number;
  /** Of all files of an image together, and of one. */
  readonly unpackedBytes: number;
  readonly fileBytes: number;
  /** Entries of an image, whiteouts included. */
  readonly entries: number;
  /** Unpacked bytes for one packed, from where on it counts: a few zeros pack well and do no harm. */
  readonly ratio: number;
  readonly ratioFromBytes: number;
  /** What file systems allow. */
  readonly nameBytes: number;
  readonly pathBytes: number;
  readonly depth: number;
};

const MiB = 1024 * 1024;

export const imageLimits: ImageLimits = {
  layers: 127,
  blobBytes: 10 * 1024 * MiB,
  manifestBytes: 4 * MiB,
  unpackedBytes: 20 * 1024 * MiB,
  fileBytes: 1024 * MiB,
  entries: 100_000,
  ratio: 200,
  ratioFromBytes: 16 * MiB,
  nameBytes: 255,
  pathBytes: 4_000,
  depth: 100,
};
