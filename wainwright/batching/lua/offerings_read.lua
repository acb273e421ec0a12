-- → offerings without capacity now (`capacity type/instance type/zone`)
return redis.call('ZRANGEBYSCORE', P .. 'unavailable', '(' .. int(NOW), '+inf')
