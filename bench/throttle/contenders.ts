import type { Contender } from "./fleet.ts";
import { flotilla } from "./ours.ts";
import { aimd } from "./peers/aimd.ts";
import { envoy } from "./peers/envoy.ts";
import { fixed } from "./peers/fixed.ts";
import { gradient2 } from "./peers/gradient2.ts";
import { hybrid } from "./peers/hybrid.ts";
import { inspect } from "./peers/inspect.ts";
import { tokenBucket } from "./peers/token-bucket.ts";

export const contenders: readonly Contender[] = [
  flotilla("flotilla", "default", "the default, which remembers its ceiling"),
  flotilla("flotilla_gradient", "gradient", "the preset `gradient`, which also shrinks by latency"),
  flotilla("flotilla_aimd", "aimd", "the preset `aimd`: +1, pause, × 0.5; in the same fleet"),
  fixed("fixed_right", 1),
  fixed("fixed_half", 0.5),
  fixed("fixed_double", 2),
  aimd,
  gradient2("gradient2", { heedsLoss: false }),
  gradient2("gradient2_loss", { heedsLoss: true }),
  envoy,
  inspect,
  hybrid,
  tokenBucket,
];

export const contenderNames = contenders.map(({ name }) => name);
