import process from "node:process";
import { type ImageLimits, imageLimits } from "./limits.ts";
import { createGuard, type OperationGuard } from "./parts/guard.ts";
import { createHealthChecker, type HealthChecker } from "./parts/health.ts";
import { createPool, type PoolManager, probe } from "./parts/pool.ts";
import { type Metadata, openMetadata } from "./store/metadata.ts";
import { type Places, placesIn } from "./store/places.ts";

/** How many runs of a flow are under way at once, on all pods. */
export const queueLimits = { downloads: 5, unpacking: 1 } as const;

/** Everything that belongs to one folder of images. */
export type Home = Disposable & {
  readonly places: Places;
  readonly metadata: Metadata;
  readonly pool: PoolManager;
  readonly health: HealthChecker;
  readonly guard: OperationGuard;
  readonly limits: ImageLimits;
  readonly close: () => void;
};

export type HomeOptions = {
  readonly limits?: Partial<ImageLimits>;
  readonly freeBytesLeast?: number;
  /** Below this, an unpacking process would be the one that is killed. */
  readonly memoryBytesLeast?: number;
};

export async function openHome(
  folder: string,
  { limits, freeBytesLeast, memoryBytesLeast = 32 * 1024 * 1024 }: HomeOptions = {},
): Promise<Home> {
  const places = placesIn(folder);
  const pool = createPool(places, { ...(freeBytesLeast !== undefined && { freeBytesLeast }) });
  await pool.ensure();
  const metadata = openMetadata(places.metadata);
  const health = createHealthChecker({
    pool: async () => (await pool.state()).problems.join(", ") || null,
    disk: () => probe(places),
    metadata: () => metadata.check(),
    memory: () => {
      const bytes = process.availableMemory();
      return bytes < memoryBytesLeast ? `only ${bytes} bytes are free` : null;
    },
  });
  const guard = createGuard({
    health,
    pool,
    atOnce: { download: queueLimits.downloads, unpack: queueLimits.unpacking },
  });
  const close = () => metadata.close();
  const all = { ...imageLimits, ...limits };
  return { places, metadata, pool, health, guard, limits: all, close, [Symbol.dispose]: close };
}
