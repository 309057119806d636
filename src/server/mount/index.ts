export {
  dashboard,
  type DashboardOptions,
  type HostLogin,
  type MountedDashboard,
  type RouteContext,
  type RouteHandler,
} from "./mount.ts";
