//! Settings that follow from the machine or from other settings (`docs/spec/03-broker.md` 17.4).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;
use std::time::Duration;

use ferromq_store::{ConfirmedBy, StoreOptions};

use super::{BrokerConfig, FlushDiskType};

pub(super) fn processors() -> u32 {
    static PROCESSORS: OnceLock<u32> = OnceLock::new();
    *PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, |count| count.get() as u32))
}

pub(super) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "DEFAULT_BROKER".to_owned() } else { name.trim().to_owned() }
}

pub(super) fn home_store() -> String {
    let home = std::env::var("HOME").unwrap_or_else(|_| ".".to_owned());
    format!("{home}/store")
}

/// The address that others reach this machine at: a public one if there is one.
pub(super) fn local_address() -> String {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    let find = || {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let addresses: Vec<IpAddr> = interfaces
            .iter()
            .filter(|interface| !interface.is_loopback())
            .map(|interface| interface.ip())
            .collect();
        match choose_address(&addresses) {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        }
    };
    ADDRESS.get_or_init(find).clone()
}

/// Of several addresses: the first public IPv4 one, else the last IPv4 one, else the first IPv6 one that is valid
/// beyond its link, else the first IPv6 one.
fn choose_address(addresses: &[IpAddr]) -> IpAddr {
    let v4 = || addresses.iter().filter(|address| address.is_ipv4());
    let is_public =
        |address: &&&IpAddr| matches!(address, IpAddr::V4(v4) if !v4.is_private() && !v4.is_loopback());
    let beyond_link = |address: &&IpAddr| matches!(address, IpAddr::V6(v6) if !v6.is_unicast_link_local());
    let chosen = v4().find(|address| is_public(&address)).or_else(|| v4().next_back());
    let chosen = chosen.or_else(|| addresses.iter().find(beyond_link)).or_else(|| addresses.first());
    chosen.copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// What the store needs to know of a broker's settings.
pub fn store_options(config: &BrokerConfig) -> StoreOptions {
    let millis = |number: u32| Duration::from_millis(number.into());
    let mut options = StoreOptions::new(&config.store_path_root_dir);
    options.commit_log_directory = config.store_path_commit_log.as_ref().map(Into::into);
    options.commit_log_file_size = config.mapped_file_size_commit_log;
    options.consume_queue_file_size = config.mapped_file_size_consume_queue;
    options.batch_consume_queue_file_size = config.mapper_file_size_batch_consume_queue;
    options.index_enabled = config.message_index_enable;
    options.index_slots = config.max_hash_slot_num;
    options.index_units = config.max_index_num;
    options.query_max = config.max_msgs_num_batch as usize;
    options.flush_disk_type = match config.flush_disk_type {
        FlushDiskType::AsyncFlush => ferromq_store::FlushDiskType::AsyncFlush,
        FlushDiskType::SyncFlush => ferromq_store::FlushDiskType::SyncFlush,
    };
    let is_elected = config.enable_d_leger_commit_log || config.enable_controller_mode;
    options.follower = config.broker_role == super::BrokerRole::Slave || is_elected;
    if is_elected {
        options.confirmed_by = ConfirmedBy::Replication { known: 0 };
    }
    options.flush_interval_commit_log = millis(config.flush_interval_commit_log);
    options.flush_interval_consume_queue = millis(config.flush_interval_consume_queue);
    options.warm_whole_files = config.warm_maped_file_enable;
    options.append_crc_property = config.enabled_append_prop_crc;
    options.light_queues_enabled = config.enable_lmq;
    options.multi_dispatch_enabled = config.enable_multi_dispatch;
    options.delay_levels_ms = config.message_delay_level.delays_ms().to_vec();
    options.delete_when_hours = config.delete_when.hours().to_vec();
    options.file_reserved = Duration::from_secs(u64::from(config.file_reserved_time) * 3600);
    options.clean_file_forcibly = config.clean_file_forcibly_enable;
    options.disk_max_used_ratio = percent(config.disk_max_used_space_ratio);
    options.disk_clean_forcibly_ratio = percent(config.disk_space_clean_forcibly_ratio);
    options.disk_warning_ratio = percent(config.disk_space_warning_level_ratio);
    options.replicas_per_disk_partition = config.replicas_per_disk_partition;
    // What is no share at all becomes a number that the store refuses.
    options.logical_disk_clean_forcibly_ratio =
        (config.logical_disk_space_clean_forcibly_threshold * 100.0).round() as u8;
    options.clean_resource_interval = millis(config.clean_resource_interval);
    options.delete_file_batch_max = config.delete_file_batch_max as usize;
    options.delete_commit_log_files_interval = millis(config.delete_commit_log_files_interval);
    options.max_transfer_bytes_in_memory = config.max_transfer_bytes_on_message_in_memory as usize;
    options.max_transfer_count_in_memory = config.max_transfer_count_on_message_in_memory as usize;
    options.max_transfer_bytes_on_disk = config.max_transfer_bytes_on_message_in_disk as usize;
    options.max_transfer_count_on_disk = config.max_transfer_count_on_message_in_disk as usize;
    options.access_message_in_memory_max_ratio = percent(config.access_message_in_memory_max_ratio);
    options.max_filter_message_size = config.max_filter_message_size as usize;
    options
}

/// The table's ranges keep ratios below 256.
fn percent(number: u32) -> u8 {
    number.try_into().unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(addresses: &[&str]) -> String {
        let addresses: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        choose_address(&addresses).to_string()
    }

    #[test]
    fn public_addresses_are_preferred() {
        assert_eq!(chosen(&["10.0.0.1", "8.8.8.8", "9.9.9.9"]), "8.8.8.8");
        assert_eq!(chosen(&["10.0.0.1", "192.168.0.1", "fd00::1"]), "192.168.0.1");
        assert_eq!(chosen(&["fe80::1", "fd00::1"]), "fd00::1");
        assert_eq!(chosen(&["fe80::1"]), "fe80::1");
        assert_eq!(chosen(&[]), "127.0.0.1");
    }

    #[test]
    fn the_store_gets_the_defaults_of_rocketmq() {
        let ours = store_options(&BrokerConfig { store_path_root_dir: "/x".into(), ..Default::default() });
        assert_eq!(format!("{ours:?}"), format!("{:?}", StoreOptions::new("/x")));
    }
}
